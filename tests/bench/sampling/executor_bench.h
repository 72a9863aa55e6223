// Sampling beside the reading of versions and beside training, at the executor's core.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "libs/common/concurrency/bounded_queue.h"
#include "services/worker/executor/executor_core.h"
#include "services/worker/executor/version_thread.h"

namespace lathe::worker {

// Commands in, passes as the executor runs them, on the calling thread. `model` must outlive it.
class ExecutorBench {
 public:
  ExecutorBench(const Model& model, int64_t kv_cache_bytes);
  ~ExecutorBench();

  // {"rank": 8, "resident": true, "busy": false}: a request for one token from a version that is in
  // memory, or in a checkpoint whose file is cached. Busy: while a sequence of the base model
  // decodes. Answers "seconds" to the token, "load_seconds", and the "pass_seconds" (median) and
  // "longest_pass_seconds" of the one that decodes, from the request to two passes after its end.
  nlohmann::json Cold(const nlohmann::json& command);

  // {"share": 0.5, "run_seconds": 5, "sequences": 4, "rank": 8, "tokens": 256}: sequences decode
  // beside forward_backwards of `tokens` tokens. Answers the measured "share" of device time, the
  // "longest_gap_seconds" between the tokens of a sequence, "pass_seconds" (mean) of its passes,
  // and "longest_step_seconds" that training took without a pause.
  nlohmann::json Share(const nlohmann::json& command);

  // {"rank": 32, "run_seconds": 5, "sequences": 1}: first sequences decode alone, then while one
  // snapshot after another is taken of a model with an open window. Answers the median and the
  // longest gap between tokens and the tokens per second of both, how many "snapshots" there were
  // and their size, the longest "staging_seconds" (pauses for passes included), the mean
  // "busy_seconds" they report, and the mean "written_seconds" from the command to the report.
  nlohmann::json Snapshots(const nlohmann::json& command);

 private:
  struct Parts;

  void MakeCore(double sampling_share);
  void Step(const std::function<void()>& on_pause = {});
  void MakeModelWithWindow(int64_t rank);
  void SaveVersion(int64_t rank);

  std::unique_ptr<Parts> parts_;
  int64_t kv_cache_bytes_;
  int64_t saved_rank_ = 0;  // of the checkpoint; 0: none
  int64_t num_requests_ = 0;
};

}  // namespace lathe::worker
