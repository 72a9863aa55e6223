#include "services/engine/core/samplers/sample_placement.h"

#include <cstdint>
#include <map>

#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/sample_queue.h"

namespace lathe::engine {
namespace {

// Returns the oldest live request that is still to be looked at, and moves its group on to the
// next one. nullptr: none is left.
Request* TakeOldest(State& s) {
  auto oldest = s.unplaced_from.end();
  std::map<int64_t, std::string>::const_iterator request;
  for (auto it = s.unplaced_from.begin(); it != s.unplaced_from.end();) {
    const auto* const live = Find(s.live_by_group, it->first);
    if (live == nullptr || live->empty() || live->rbegin()->first < it->second) {
      it = s.unplaced_from.erase(it);
      continue;
    }
    const auto next = live->lower_bound(it->second);
    const bool is_older = oldest == s.unplaced_from.end() || next->first < request->first;
    if (is_older) oldest = it;
    if (is_older) request = next;
    ++it;
  }
  if (oldest == s.unplaced_from.end()) return nullptr;
  oldest->second = request->first + 1;
  return &s.requests.at(request->second);
}

void PlaceOne(State& s, Request& request) {
  const Group* const group = Find(s.groups, request.group);
  // A worker that is away may come back with the sample. A worker that has come back is sent the
  // sample again, because the first message may be lost. A new leader does not know the group that
  // the sample was sent to. Another group with an epoch of the same number may only train.
  if (MayRun(s, request) && group->can_sample()) return QueueAtItsGroup(s, request);
  const bool was_lost = group != nullptr && request.row.state == RequestState::kDispatched;
  if (was_lost) request.row.state = RequestState::kAccepted;
  QueueSample(s, request);
}

// Frees what the queues of lost workers held.
void FreeCleared(State& s) {
  const int64_t most = 4 * s.options.max_swept;  // takes less than a millisecond
  for (auto& [name, group] : s.groups) {
    for (FairQueue* const queue : {&group.samples, &group.train, &group.large_train}) {
      if (queue->FreeSome(most)) AskToContinue(s);
    }
  }
}

}  // namespace

void PlaceAgain(State& s, const std::string& group) { s.unplaced_from[group] = 0; }

void PlaceForGroup(State& s, const Group& group) {
  s.unplaced_from.erase(group.row.group);
  // The sample that runs alone keeps its turn.
  Request* const alone = Find(s.requests, group.alone);
  const bool has_it = alone != nullptr && alone->live() && alone->group == group.row.group;
  if (has_it && alone->row.op_class == OpClass::kSample) QueueAtItsGroup(s, *alone);
  PlaceAgain(s, group.row.group);
  for (const auto& [name, live] : s.live_by_group) {
    const Group* const other = Find(s.groups, name);
    const bool samples = other != nullptr && other->usable() && other->can_sample();
    if (!samples) PlaceAgain(s, name);
  }
}

void PlaceSamples(State& s) {
  if (s.leaves_pieces) return;
  FreeCleared(s);
  Budget budget(s.options.max_swept);
  while (budget.Take()) {
    Request* const request = TakeOldest(s);
    if (request == nullptr) return;
    ++s.num_looked_at;
    if (request->row.op_class == OpClass::kSample) PlaceOne(s, *request);
  }
  if (!s.unplaced_from.empty()) AskToContinue(s);
}

}  // namespace lathe::engine
