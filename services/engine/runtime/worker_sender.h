// The runtime's interface to workers; dispatcher/ implements it.
#pragma once

#include <map>
#include <string>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// State of a group with an attached worker, for metrics.
struct WorkerStatus {
  bool ready = false;
  // Time since the last message from the worker, and since its work last advanced or it had no
  // work. With several ranks, the largest age.
  double heartbeat_age_seconds = 0;
  double progress_age_seconds = 0;
};

class WorkerSender {
 public:
  virtual ~WorkerSender() = default;

  // Called on the core's thread, in order. Must wait for neither the network nor the store. Drops
  // the command when there is no stream to the group.
  virtual void Send(SendToWorker command) = 0;

  // Makes the worker that runs the sample report its tokens from the first one on. Otherwise like
  // Send.
  virtual void StreamSample(const std::string& request_id) = 0;

  // Returns the status of every group with an attached worker, by group. Any thread.
  virtual std::map<std::string, WorkerStatus> Statuses() = 0;
};

}  // namespace lathe::engine
