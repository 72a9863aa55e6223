// The executor's interface to the Attach stream. Native types only: no torch, no protobuf.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/collectives/traffic.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/reports.h"

namespace lathe::worker {

// Totals (and one maximum) since the process started.
struct ExecutorCounters {
  int64_t train_passes = 0;  // packed micro-batches, forward or forward-backward
  int64_t train_tokens = 0;
  int64_t prefill_passes = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_passes = 0;  // one token for every running sequence
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;        // samples that gave up their keys and values to older ones
  int64_t looked_up_tokens = 0;   // prompt tokens looked up in the prefix cache
  int64_t prompt_hit_tokens = 0;  // those of them that were found
  int64_t kv_evictions = 0;       // blocks taken from the prefix cache
  int64_t optim_steps = 0;
  int64_t out_of_memory_retries = 0;  // training passes run again in halves
  int64_t arena_peak_bytes = 0;       // the maximum that a training pass reserved
  absl::Duration training_time;       // device time
  absl::Duration sampling_time;       // device time
  int64_t version_loads = 0;          // sampler versions read from disk or other groups
  absl::Duration version_load_time;   // sum over all loads
  int64_t version_evictions = 0;      // sampler versions dropped from memory
  int64_t snapshots = 0;              // snapshots of models written
  int64_t snapshot_failures = 0;
  absl::Duration snapshot_time;  // time that threads worked on them
};

// Memory use of sampler versions.
struct VersionUsage {
  int64_t num_in_memory = 0;
  int64_t bytes_in_memory = 0;
};

// Memory of the rank's device, in bytes.
struct MemoryShare {
  std::string owner;
  int64_t used = 0;
  int64_t limit = 0;  // share in the memory plan
};
struct MemoryUse {
  int64_t used = 0;   // sum of all shares
  int64_t limit = 0;  // total of the memory plan
  std::vector<MemoryShare> shares;
};

// State of the process as of the last finished command.
struct ExecutorState {
  bool ready = false;  // true if the base model is loaded and `model` is set
  ModelInfo model;
  std::string device;        // "cpu" or "cuda:0"
  int64_t bytes_loaded = 0;  // bytes of the base model
  int64_t bytes_total = 0;
  int64_t arena_bytes = 0;  // limit of what a training pass may reserve
  MemoryUse memory;         // no shares while the base model is loading
  KvUsage kv_usage;
  VersionUsage version_usage;
  std::vector<ModelState> models;     // ascending model_id
  std::vector<HeldVersion> versions;  // ascending version_id, on disk or in memory
  ExecutorCounters counters;
  Traffic traffic;       // collectives with other ranks
  int64_t progress = 0;  // grows with each part of any work
  bool is_busy = true;   // true if it has work and `progress` must grow; loading is work
};

// A report, and the state of its model when the operation was done.
struct ReportEvent {
  int64_t generation = 0;  // generation of the last Reset before the command
  Report report;
  std::optional<ModelState> model;
};

// Callbacks of an executor. They are called on its threads and must not block.
struct ExecutorListener {
  std::function<void(ReportEvent)> on_report;
  std::function<void()> on_state_changed;  // loading progressed, or the base model is ready
};

// The executor as the Attach stream sees it. Thread-safe. Commands of one model take effect in the
// order in which they were submitted.
class ExecutorPort {
 public:
  virtual ~ExecutorPort() = default;

  // Queues a command. ResourceExhausted: the queue is full. Cancelled: the process ends, and no
  // answer will follow. Every accepted command with a request_id is answered by exactly one report,
  // unless a Reset comes first. `encoded` is the command for the other ranks of the group; empty
  // without any.
  virtual absl::Status Submit(Command command, std::string encoded) = 0;

  // Drops every model, version, gradient and command. Reports of earlier commands may still follow,
  // with an older generation.
  virtual void Reset(int64_t generation) = 0;

  // Returns a consistent state. Before a report is delivered, its effect is visible here.
  virtual ExecutorState State() const = 0;
};

}  // namespace lathe::worker
