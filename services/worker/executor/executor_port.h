// What the Attach stream may ask of the executor. Native types only: no torch, no protobuf.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/collectives/traffic.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// Totals (and one maximum) since the process started.
struct ExecutorCounters {
  int64_t train_passes = 0;  // packed micro-batches, forward or forward-backward
  int64_t train_tokens = 0;
  int64_t prefill_passes = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_passes = 0;  // one token for every running sequence
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;        // samples whose keys and values were dropped for older ones
  int64_t looked_up_tokens = 0;   // of prompts
  int64_t prompt_hit_tokens = 0;  // of them that were in the prefix cache
  int64_t kv_evictions = 0;       // blocks taken from the prefix cache
  int64_t optim_steps = 0;
  int64_t out_of_memory_retries = 0;  // training passes run again in halves
  int64_t arena_peak_bytes = 0;       // the most a training pass reserved
  absl::Duration training_time;       // of the device
  absl::Duration sampling_time;       // of the device
  int64_t version_loads = 0;          // of sampler versions, from disk
  absl::Duration version_load_time;   // of them together
  int64_t version_evictions = 0;      // of sampler versions from memory
  int64_t snapshots = 0;              // of models, written
  int64_t snapshot_failures = 0;
  absl::Duration snapshot_time;  // that threads were busy with those written
};

// Sampler versions.
struct VersionUsage {
  int64_t num_in_memory = 0;
  int64_t bytes_in_memory = 0;
};

// Memory of the rank's device. Bytes.
struct MemoryShare {
  std::string owner;
  int64_t used = 0;
  int64_t limit = 0;  // of the plan
};
struct MemoryUse {
  int64_t used = 0;   // of all shares
  int64_t limit = 0;  // that the plan has
  std::vector<MemoryShare> shares;
};

// What the process holds, as of the last finished command.
struct ExecutorState {
  bool ready = false;  // base model loaded; `model` is set
  ModelInfo model;
  std::string device;        // "cpu" or "cuda:0"
  int64_t bytes_loaded = 0;  // of the base model
  int64_t bytes_total = 0;
  int64_t arena_bytes = 0;  // that a training pass may reserve
  MemoryUse memory;         // no shares: the base model is loading
  KvUsage kv_usage;
  VersionUsage version_usage;
  std::vector<ModelState> models;     // ascending model_id
  std::vector<HeldVersion> versions;  // ascending version_id, on disk or in memory
  ExecutorCounters counters;
  Traffic traffic;       // with other ranks
  int64_t progress = 0;  // grows with each part of whatever it does
  bool is_busy = true;   // has work, so that `progress` is to grow; loading is work
};

// One report, and the state of the model it is about once the operation was done.
struct ReportEvent {
  int64_t generation = 0;  // of the Reset the command came after
  Report report;
  std::optional<ModelState> model;
};

// Where an executor tells what happened. Called on the executor's threads; must not block.
struct ExecutorListener {
  std::function<void(ReportEvent)> on_report;
  std::function<void()> on_state_changed;  // loading progressed, or the base model is ready
};

// Thread-safe. Commands of one model take effect in the order they were submitted.
class ExecutorPort {
 public:
  virtual ~ExecutorPort() = default;

  // ResourceExhausted: the command queue is full. Cancelled: the process ends, and nobody has an
  // answer to give. Every accepted command with a request_id is
  // answered by exactly one report, unless a Reset comes first.
  // `encoded` is the command as the other ranks of the group get it; empty where there are none.
  virtual absl::Status Submit(Command command, std::string encoded) = 0;

  // Drops every model, version, gradient and command. Reports of what came before may still
  // follow; they carry an older generation.
  virtual void Reset(int64_t generation) = 0;

  // Consistent: a report is delivered after the state it is about can be seen here.
  virtual ExecutorState State() const = 0;
};

}  // namespace lathe::worker
