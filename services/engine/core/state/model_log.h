// The operations that produced one model's weights and gradient since its oldest snapshot. A replay
// in order rebuilds them.
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
  std::string adam_params;      // see OptimStepArgs
  std::vector<int64_t> window;  // seqs that it applied, ascending
  // The model's applied_seq before the step; -1: the row does not have it. Reveals missing entries.
  int64_t after_seq = -1;
};

// Encodes the window and after_seq of a step for its row: "4,5, after 3".
std::string EncodeStepOutcome(const LoggedStep& step);
void DecodeStepOutcome(const std::string& text, LoggedStep& step);

struct LoggedLoad {
  std::string request_id;
  std::string dir;  // pinned directory of the checkpoint
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

// One operation on the way from one point to another.
struct ReplayOp {
  enum class Kind { kClear, kGradients, kStep, kLoad, kPublish };
  Kind kind = Kind::kClear;
  std::vector<int64_t> seqs;  // kGradients: their seqs; kClear: empty; else one seq
};

class ModelLog {
 public:
  // Adds an operation that ended successfully. Replaces the entry at `seq`.
  void Add(int64_t seq, LogEntry entry);
  // Returns nullptr if `seq` is not logged.
  const LogEntry* Find(int64_t seq) const;

  // Returns the operations that lead from `from` to `to`, in order.
  // - `publications`: seqs of the publications to repeat, ascending.
  // - Leaves out gradients that no step applied and that are not in `to`.
  // - Each operation has gradients of at most `max_tokens`, or a single one.
  // - Returns DataLoss with the seq if an operation is missing anywhere in the log.
  absl::StatusOr<std::vector<ReplayOp>> Path(const ModelPoint& from, const ModelPoint& to,
                                             const std::vector<int64_t>& publications,
                                             int64_t max_tokens) const;

  // Removes and returns the entries that no path from `base` needs.
  std::vector<LogEntry> CutBefore(const ModelPoint& base);
  // Removes and returns the gradients up to `from_seq` that no step applied: they were dropped.
  std::vector<LogEntry> CutDropped(int64_t from_seq);
  std::vector<LogEntry> CutAll();

  // Seqs of loads, descending.
  std::vector<int64_t> Loads() const;
  const std::map<int64_t, LogEntry>& entries() const { return entries_; }
  // Total size of the gradients' bodies.
  int64_t bytes() const { return bytes_; }

 private:
  LogEntry Take(std::map<int64_t, LogEntry>::iterator it);

  std::map<int64_t, LogEntry> entries_;
  int64_t bytes_ = 0;
};

}  // namespace lathe::engine
