// Loss of a group's processes and of the state that they held.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

struct Loss {
  // False: the same processes attached again without having got the group's newest Form. The
  // commands sent under that Form are lost, but no process has died.
  bool is_new_process = true;
  LossCause cause = LossCause::kUnknown;
  std::string how;
  int64_t rank = -1;  // the rank that ended or reported it; -1: unknown
};
// The best known cause of a loss. An exit reported by a parent takes precedence over a peer's
// report, a missing heartbeat or a broken stream.
Loss BestKnown(const Group& group, const Loss& loss);

// Marks the group's models for recovery and its requests to be sent again, except requests that are
// failed for the crash.
void FailOverGroup(State& s, Group& group, const Loss& loss);

// Call when the group's processes cannot work together any more. Does the same as FailOverGroup and
// evicts the attached processes. Processes that end in order get some time for it.
void DeclareGroupDead(State& s, Group& group, const Loss& guess);
// Marks the group as not attached: it gets no more commands.
void Detach(Group& group);

// Drops the group's queues and counters of running work.
void ForgetOutstanding(Group& group);

void OnWorkerDetached(State& s, const WorkerDetached& event);
void OnWorkerExited(State& s, const WorkerExited& event);

// Declares workers dead that have been away for worker_lost_timeout.
void DeclareLostWorkersDead(State& s);

}  // namespace lathe::engine
