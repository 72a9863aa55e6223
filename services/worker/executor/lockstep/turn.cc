#include "services/worker/executor/lockstep/turn.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/worker/collectives/packing.h"

namespace lathe::worker {
namespace {

void Write(const TurnCommand& item, PackWriter& writer) { writer.Text(item.encoded); }
void Write(const TurnReset& item, PackWriter& writer) { writer.Number(item.generation); }
void Write(const TurnVersionJob& item, PackWriter& writer) { writer.Number(item.ticket); }
void Write(const TurnRecoveryJob& item, PackWriter& writer) {
  writer.Number(item.number);
  writer.Number(static_cast<int64_t>(item.status.code()));
  writer.Text(std::string(item.status.message()));
}

// Reads the alternative `index` of TurnItem; nullopt: there is none.
std::optional<TurnItem> Read(int64_t index, PackReader& reader) {
  switch (index) {
    case 0:
      return TurnCommand{reader.Text()};
    case 1:
      return TurnReset{reader.Number()};
    case 2:
      return TurnVersionJob{reader.Number()};
    case 3: {
      const int64_t number = reader.Number();
      const auto code = static_cast<absl::StatusCode>(reader.Number());
      return TurnRecoveryJob{number, absl::Status(code, reader.Text())};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string EncodeTurnItems(const std::vector<TurnItem>& items) {
  PackWriter writer;
  for (const TurnItem& item : items) {
    writer.Number(static_cast<int64_t>(item.index()));
    std::visit([&](const auto& alternative) { Write(alternative, writer); }, item);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<TurnItem>> DecodeTurnItems(std::string_view encoded) {
  PackReader reader(encoded);
  std::vector<TurnItem> items;
  while (!reader.is_at_end()) {
    std::optional<TurnItem> item = Read(reader.Number(), reader);
    if (!item.has_value() || reader.is_damaged()) {
      return absl::InternalError(absl::StrFormat("item %d of a turn of %d bytes is damaged",
                                                 items.size(), encoded.size()));
    }
    items.push_back(*std::move(item));
  }
  return items;
}

}  // namespace lathe::worker
