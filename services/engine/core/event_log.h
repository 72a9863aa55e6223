// A file with the events of one core, and the digest of the resulting actions. A replay of the file
// in another process must give the same digest (design 5.1).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/digest/sha256.h"
#include "services/engine/core/actions.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// SHA-256 over every action of a core, in order.
class ActionDigest {
 public:
  void Add(const std::vector<Action>& actions);
  int64_t num_actions() const { return num_actions_; }
  // 64 hex digits; call once, at the end.
  std::string FinishHex() { return digest_.FinishHex(); }

 private:
  Sha256 digest_;
  int64_t num_actions_ = 0;
};

// Writes the options, then every event before its Step. Writes are buffered: a killed process loses
// the last events, but never part of an earlier one. Not thread-safe.
class EventLogWriter {
 public:
  // Replaces the file.
  static absl::StatusOr<EventLogWriter> Open(const std::string& path, const CoreOptions& options);

  absl::Status Append(const Event& event);
  absl::Status Flush();

 private:
  explicit EventLogWriter(std::ofstream file) : file_(std::move(file)) {}

  std::ofstream file_;
  std::string buffer_;  // encoding of one event
};

struct ReplayResult {
  int64_t num_events = 0;
  int64_t num_actions = 0;
  std::string digest;
};

// Steps a new core through a log. Ignores a truncated last event. Returns InvalidArgument if the
// file is otherwise not a log of this version.
absl::StatusOr<ReplayResult> ReplayEventLog(const std::string& path);

}  // namespace lathe::engine
