#include "services/worker/executor/lockstep/lockstep_round.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/worker/collectives/packing.h"

namespace lathe::worker {
namespace {

void Write(const RoundCommand& item, PackWriter& writer) { writer.Text(item.encoded); }
void Write(const RoundReset& item, PackWriter& writer) { writer.Number(item.generation); }
void Write(const RoundVersionJob& item, PackWriter& writer) { writer.Number(item.ticket); }
void Write(const RoundRecoveryJob& item, PackWriter& writer) {
  writer.Number(item.number);
  writer.Number(static_cast<int64_t>(item.status.code()));
  writer.Text(std::string(item.status.message()));
}
void Write(const RoundSave& item, PackWriter& writer) { writer.Number(item.num_bytes); }

// Reads the alternative `index` of RoundItem; nullopt: there is none.
std::optional<RoundItem> Read(int64_t index, PackReader& reader) {
  switch (index) {
    case 0:
      return RoundCommand{reader.Text()};
    case 1:
      return RoundReset{reader.Number()};
    case 2:
      return RoundVersionJob{reader.Number()};
    case 3: {
      const int64_t number = reader.Number();
      const auto code = static_cast<absl::StatusCode>(reader.Number());
      return RoundRecoveryJob{number, absl::Status(code, reader.Text())};
    }
    case 4:
      return RoundSave{reader.Number()};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string EncodeRoundItems(const std::vector<RoundItem>& items) {
  PackWriter writer;
  for (const RoundItem& item : items) {
    writer.Number(static_cast<int64_t>(item.index()));
    std::visit([&](const auto& alternative) { Write(alternative, writer); }, item);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<RoundItem>> DecodeRoundItems(std::string_view encoded) {
  PackReader reader(encoded);
  std::vector<RoundItem> items;
  while (!reader.is_at_end()) {
    std::optional<RoundItem> item = Read(reader.Number(), reader);
    if (!item.has_value() || reader.is_damaged()) {
      return absl::InternalError(absl::StrFormat("item %d of a round of %d bytes is damaged",
                                                 items.size(), encoded.size()));
    }
    items.push_back(*std::move(item));
  }
  return items;
}

}  // namespace lathe::worker
