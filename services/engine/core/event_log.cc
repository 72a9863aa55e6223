#include "services/engine/core/event_log.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/core.h"
#include "services/engine/core/serialize.h"

namespace lathe::engine {
namespace {

// Raise the number when the structs of an event change.
constexpr char kMagic[] = "lathe event log 10\n";
constexpr size_t kMagicSize = sizeof(kMagic) - 1;
constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 32;

absl::Status FileError(const std::string& path, const char* what) {
  return absl::UnavailableError(
      absl::StrFormat("event log %s: cannot %s: %s", path, what, std::strerror(errno)));
}

// Appends the header of a record: the record's length as 8 little-endian bytes.
void AppendLength(uint64_t length, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(length >> shift));
}

// Returns nullopt if the file ends within the record.
std::optional<std::string> ReadRecord(std::ifstream& file) {
  unsigned char head[8];
  if (!file.read(reinterpret_cast<char*>(head), sizeof(head))) return std::nullopt;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | head[i];
  if (length > kMaxRecordBytes) return std::nullopt;
  std::string record(length, '\0');
  if (!file.read(record.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  return record;
}

}  // namespace

void ActionDigest::Add(const std::vector<Action>& actions) {
  num_actions_ += static_cast<int64_t>(actions.size());
  digest_.Update(Serialize(actions));
}

absl::StatusOr<EventLogWriter> EventLogWriter::Open(const std::string& path,
                                                    const CoreOptions& options) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  std::string head(kMagic, kMagicSize);
  const std::string record = Serialize(options);
  AppendLength(record.size(), head);
  head += record;
  if (!file.write(head.data(), static_cast<std::streamsize>(head.size()))) {
    return FileError(path, "write");
  }
  return EventLogWriter(std::move(file));
}

absl::Status EventLogWriter::Append(const Event& event) {
  const std::string record = Serialize(event);
  buffer_.clear();
  AppendLength(record.size(), buffer_);
  buffer_ += record;
  if (!file_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()))) {
    return absl::UnavailableError("event log: cannot write");
  }
  return absl::OkStatus();
}

absl::Status EventLogWriter::Flush() {
  return file_.flush() ? absl::OkStatus() : absl::UnavailableError("event log: cannot flush");
}

absl::StatusOr<ReplayResult> ReplayEventLog(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError(path, "open");
  char magic[kMagicSize];
  if (!file.read(magic, kMagicSize) || std::memcmp(magic, kMagic, kMagicSize) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is not an event log", path));
  }
  const std::optional<std::string> head = ReadRecord(file);
  const auto options = head ? Deserialize<CoreOptions>(*head) : std::nullopt;
  if (!options) return absl::InvalidArgumentError(absl::StrFormat("%s has no options", path));

  Core core(*options);
  ActionDigest digest;
  ReplayResult result;
  std::vector<Action> actions;
  while (const std::optional<std::string> record = ReadRecord(file)) {
    const auto event = Deserialize<Event>(*record);
    if (!event) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: event %d cannot be read", path, result.num_events));
    }
    actions.clear();
    core.Step(*event, &actions);
    digest.Add(actions);
    ++result.num_events;
  }
  result.num_actions = digest.num_actions();
  result.digest = digest.FinishHex();
  return result;
}

}  // namespace lathe::engine
