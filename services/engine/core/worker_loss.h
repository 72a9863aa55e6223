// A worker's processes are gone, and what they held with them.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

struct Loss {
  // False: the old process lives and lost what it was sent, as it was never told of its group;
  // nothing has died.
  bool is_new_process = true;
  LossCause cause = LossCause::kUnknown;
  std::string how;
  int64_t rank = -1;  // whose end this is, or who says so; -1: not known
};
// What is known best of it: a parent that has told of a death knows better than a peer, a silence
// or a broken stream.
Loss BestKnown(const Group& group, const Loss& loss);

// Its models are to be recovered, its requests wait to be sent again, unless they are to blame.
void LoseProcess(State& s, Group& group, const Loss& loss);

// The group's processes will not work together any more: as above, and those that are there are
// told to die. While somebody ends them in good order they have some time for it.
void LoseGroup(State& s, Group& group, const Loss& guess);
// Nothing goes to it.
void Detach(Group& group);

// Nothing is queued for it, and nothing it runs is waited for.
void ForgetOutstanding(Group& group);

void OnWorkerDetached(State& s, const WorkerDetached& event);
void OnWorkerExited(State& s, const WorkerExited& event);

// Gives up workers that have been away for worker_lost_timeout.
void GiveUpLostWorkers(State& s);

}  // namespace lathe::engine
