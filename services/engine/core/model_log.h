// The operations that made one model's weights and gradient since its oldest snapshot: what running
// them again, in order, rebuilds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

struct LoggedGradient {
  std::string request_id;
  std::string body_id;
  int64_t body_bytes = 0;
  int64_t tokens = 0;
};

struct LoggedStep {
  std::string request_id;
  OptimStepArgs adam;
  std::vector<int64_t> window;  // what it applied, ascending
  // The model's applied_seq before it; -1: of a row that does not say. Shows what is missing.
  int64_t after_seq = -1;
};

// What the row of a step says of it as its outcome: "4,5, after 3".
std::string EncodeStepOutcome(const LoggedStep& step);
void DecodeStepOutcome(const std::string& text, LoggedStep& step);

struct LoggedLoad {
  std::string request_id;
  std::string dir;  // of the checkpoint, pinned
  bool with_optimizer = false;
};

struct LoggedPublication {
  std::string request_id;
  std::string version_id;
  bool is_inflight = false;
};

using LogEntry = std::variant<LoggedGradient, LoggedStep, LoggedLoad, LoggedPublication>;

// A state of the model: the last operation that changed the weights, and the accumulator.
struct ModelPoint {
  int64_t applied_seq = 0;
  std::vector<int64_t> window;  // ascending
};

// One thing to do on the way from one point to another.
struct ReplayOp {
  enum class Kind { kClear, kGradients, kStep, kLoad, kPublish };
  Kind kind = Kind::kClear;
  std::vector<int64_t> seqs;  // of the gradients; else the one operation, none for kClear
};

class ModelLog {
 public:
  // The operation at `seq` ended well. Replaces what the seq had.
  void Add(int64_t seq, LogEntry entry);
  // Nullptr: not logged.
  const LogEntry* Find(int64_t seq) const;

  // What leads from `from` to `to`, in order. `publications`: seqs of those to repeat, ascending.
  // Gradients that no step applied, and that `to` lacks, are left out. At most `max_tokens` of
  // gradients, or one, in each operation. DataLoss names what is not logged any more, also between
  // others.
  absl::StatusOr<std::vector<ReplayOp>> Path(const ModelPoint& from, const ModelPoint& to,
                                             const std::vector<int64_t>& publications,
                                             int64_t max_tokens) const;

  // Takes out what no path from `base` needs.
  std::vector<LogEntry> CutBefore(const ModelPoint& base);
  // Gradients up to `from_seq` that no step applied: they were dropped.
  std::vector<LogEntry> CutDropped(int64_t from_seq);
  std::vector<LogEntry> CutAll();

  // Seqs of loads, descending.
  std::vector<int64_t> Loads() const;
  const std::map<int64_t, LogEntry>& entries() const { return entries_; }
  // Of the gradients' bodies.
  int64_t bytes() const { return bytes_; }

 private:
  LogEntry Take(std::map<int64_t, LogEntry>::iterator it);

  std::map<int64_t, LogEntry> entries_;
  int64_t bytes_ = 0;
};

}  // namespace lathe::engine
