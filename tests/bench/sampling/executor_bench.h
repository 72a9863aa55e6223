// Measures sampling at the executor core while it loads versions, trains or takes snapshots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "libs/common/concurrency/bounded_queue.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/executor/versions/version_thread.h"

namespace lathe::worker {

// Applies commands to an executor core and runs its passes on the calling thread. `model` must
// outlive it.
class ExecutorBench {
 public:
  ExecutorBench(const Model& model, int64_t kv_cache_bytes);
  ~ExecutorBench();

  // {"rank": 8, "resident": true, "busy": false}: requests one token from a version that is in
  // memory (resident) or in a checkpoint whose file is in the page cache. If busy, a sequence of
  // the base model decodes meanwhile. Returns "seconds" until the token, "load_seconds", and the
  // "pass_seconds" (median) and "longest_pass_seconds" of the decoding sequence. These cover the
  // time from the request to two passes after its end.
  nlohmann::json Cold(const nlohmann::json& command);

  // {"share": 0.5, "run_seconds": 5, "sequences": 4, "rank": 8, "tokens": 256}: sequences decode
  // while forward_backwards of `tokens` tokens run. Returns the measured "share" of device time for
  // sampling, the "gap_seconds" (median) and "longest_gap_seconds" between a sequence's tokens,
  // "pass_seconds" (mean), and "longest_step_seconds", the longest training time between two yield
  // points.
  nlohmann::json Share(const nlohmann::json& command);

  // {"rank": 32, "run_seconds": 5, "sequences": 1}: sequences decode first alone, then during
  // back-to-back snapshots of a model with an open window. For each phase, returns the median and
  // longest gap between tokens and the tokens per second ("alone" holds those of the first phase).
  // Also returns the number of "snapshots", their size, the longest "staging_seconds" (including
  // passes at yield points), the mean "busy_seconds" that they report, and the mean
  // "written_seconds" from command to report.
  nlohmann::json Snapshots(const nlohmann::json& command);

 private:
  struct Parts;

  void MakeCore(double sampling_share);
  void Step(const std::function<void()>& on_yield = {});
  void MakeModelWithWindow(int64_t rank);
  void SaveVersion(int64_t rank);

  std::unique_ptr<Parts> parts_;
  int64_t kv_cache_bytes_;
  int64_t saved_rank_ = 0;  // LoRA rank of the checkpoint; 0: no checkpoint
  int64_t num_requests_ = 0;
};

}  // namespace lathe::worker
