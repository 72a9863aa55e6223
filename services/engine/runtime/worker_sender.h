// The runtime's interface to workers; dispatcher/ implements it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// Memory sizes in bytes.
struct MemoryShare {
  std::string owner;
  int64_t used = 0;
  int64_t limit = 0;
};
struct MemoryUse {
  int64_t used = 0;
  int64_t limit = 0;
  std::vector<MemoryShare> shares = {};  // parts of `used`; empty: not reported yet
};

struct RankStatus {
  int64_t rank = 0;
  std::string device;
  int64_t pid = 0;
  MemoryUse memory;
};

// The last report of a group's rank 0, for people and metrics.
struct WorkerStatus {
  std::string group;
  MeshShape mesh;
  std::vector<RankStatus> ranks = {};  // attached ranks, ascending
  std::string base_model;
  GroupRole role = GroupRole::kBoth;
  std::string device;
  bool ready = false;
  std::string progress;  // description while loading
  // Counters since the worker's process started.
  int64_t train_passes = 0;
  int64_t train_tokens = 0;
  int64_t prefill_passes = 0;
  int64_t decode_passes = 0;
  int64_t generated_tokens = 0;
  // Time since the last message from the worker, and since its work last advanced or it had no
  // work. With several ranks, the largest age.
  double heartbeat_age_seconds = 0;
  double progress_age_seconds = 0;
};

class WorkerSender {
 public:
  virtual ~WorkerSender() = default;

  // Called on the core's thread, in order. Must not wait for the network. Drops the command when
  // there is no stream to the group.
  virtual void Send(const SendToWorker& command) = 0;

  // Makes the worker that runs the sample report its tokens from the first one on. Otherwise like
  // Send.
  virtual void StreamSample(const std::string& request_id) = 0;

  // Returns the status of every group with an attached worker. Any thread.
  virtual std::vector<WorkerStatus> Statuses() = 0;
};

}  // namespace lathe::engine
