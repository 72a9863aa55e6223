// The runtime's way to workers; dispatcher/ implements it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// Bytes.
struct MemoryShare {
  std::string owner;
  int64_t used = 0;
  int64_t limit = 0;
};
struct MemoryUse {
  int64_t used = 0;
  int64_t limit = 0;
  std::vector<MemoryShare> shares = {};  // of `used`; empty: not told yet
};

struct RankStatus {
  int64_t rank = 0;
  std::string device;
  int64_t pid = 0;
  MemoryUse memory;
};

// What a group's rank 0 said last, for people and metrics.
struct WorkerStatus {
  std::string group;
  MeshShape mesh;
  std::vector<RankStatus> ranks = {};  // that are attached, ascending
  std::string base_model;
  GroupRole role = GroupRole::kBoth;
  std::string device;
  bool ready = false;
  std::string progress;  // while loading
  // Counters since the worker's process started.
  int64_t train_passes = 0;
  int64_t train_tokens = 0;
  int64_t prefill_passes = 0;
  int64_t decode_passes = 0;
  int64_t generated_tokens = 0;
  // Since anything came from it; since its work made a step or it had none. Of several ranks, of
  // that which was heard of least lately.
  double heartbeat_age_seconds = 0;
  double progress_age_seconds = 0;
};

class WorkerSender {
 public:
  virtual ~WorkerSender() = default;

  // Called on the core's thread, in order; must not wait for the network. Without a stream to the
  // group the command is dropped.
  virtual void Send(const SendToWorker& command) = 0;

  // Has whichever worker runs the sample report its tokens, from the first on. As Send.
  virtual void StreamSample(const std::string& request_id) = 0;

  // Of every group with an attached worker. Any thread.
  virtual std::vector<WorkerStatus> Statuses() = 0;
};

}  // namespace lathe::engine
