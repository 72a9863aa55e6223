// The executor's interface to the Attach stream. Native types only: no torch, no protobuf.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/collectives/traffic.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/counters.h"
#include "services/worker/ops/reports.h"

namespace lathe::worker {

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
