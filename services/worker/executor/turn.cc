#include "services/worker/executor/turn.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"

namespace lathe::worker {
namespace {

// Numbers are 8 bytes in the machine's order: ranks are one program. Texts follow their size.
class Writer {
 public:
  void Number(int64_t value) { out_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Text(std::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    out_.append(text);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Once something is missing, everything is zero or empty.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  int64_t Number() {
    int64_t value = 0;
    const std::string_view bytes = Bytes(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Bytes(Number())); }

  bool is_at_end() const { return rest_.empty(); }
  bool is_damaged() const { return is_damaged_; }

 private:
  std::string_view Bytes(int64_t size) {
    if (size < 0 || size > static_cast<int64_t>(rest_.size())) {
      is_damaged_ = true;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
  bool is_damaged_ = false;
};

void Write(const TurnCommand& item, Writer& writer) { writer.Text(item.encoded); }
void Write(const TurnReset& item, Writer& writer) { writer.Number(item.generation); }
void Write(const TurnVersionJob& item, Writer& writer) { writer.Number(item.ticket); }
void Write(const TurnRecoveryJob& item, Writer& writer) {
  writer.Number(item.number);
  writer.Number(static_cast<int64_t>(item.status.code()));
  writer.Text(std::string(item.status.message()));
}

// Of the alternative `index` of TurnItem.
std::optional<TurnItem> Read(int64_t index, Reader& reader) {
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
  Writer writer;
  for (const TurnItem& item : items) {
    writer.Number(static_cast<int64_t>(item.index()));
    std::visit([&](const auto& alternative) { Write(alternative, writer); }, item);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<TurnItem>> DecodeTurnItems(std::string_view encoded) {
  Reader reader(encoded);
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
