#include "services/engine/core/worker_loss.h"

#include <set>
#include <vector>

#include "services/engine/core/checkpoints.h"
#include "services/engine/core/group_state.h"
#include "services/engine/core/operations.h"
#include "services/engine/core/recovery.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/samplers.h"
#include "services/engine/core/snapshots.h"
#include "services/engine/core/suspects.h"
#include "services/engine/core/versions.h"

namespace lathe::engine {
namespace {

bool IsByItself(LossCause cause) {
  return cause == LossCause::kCrashed || cause == LossCause::kOutOfMemory;
}

// What a save may have written, and its next run will not replace.
void DropSaveFiles(State& s, const Group& group, const Request& request) {
  const std::string& dir = request.plan->dir;
  if (dir.empty() || request.row.kind == OperationKind::kLoadWeights) return;
  s.fx.After(DeleteFiles{SaveDir(dir, group.row.group, group.row.epoch)});
}

void TakeBackAll(State& s, const Group& group) {
  for (const auto& [order, id] : s.live) {
    Request& request = s.requests.at(id);
    if (request.group != group.row.group) continue;
    DropSaveFiles(s, group, request);
    const Sampler* const sampler = Find(s.samplers, request.row.owner_id);
    if (sampler != nullptr && !sampler->unnamed()) s.samples_to_place.insert(id);
    if (request.row.state == RequestState::kDispatched) {
      request.row.state = RequestState::kAccepted;
    }
  }
}

// Any group of their base model can serve them.
void PlaceSamples(State& s) {
  std::set<std::string> ids;
  ids.swap(s.samples_to_place);
  for (const std::string& id : ids) {
    Request& request = s.requests.at(id);
    if (!request.live()) continue;
    MoveToGroup(s, request, "");
    QueueSample(s, request);
  }
}

// An unnamed version whose model is not rebuilt comes back from disk or not at all.
void LoseVersionsOfGoneModels(State& s, const Group& group) {
  for (auto& [id, sampler] : s.samplers) {
    if (!sampler.unnamed() || GroupForSampler(s, sampler) != &group) continue;
    if (s.models.at(sampler.row.model_id).recovery == nullptr) LoseVersion(s, sampler);
  }
}

}  // namespace

void ForgetOutstanding(Group& group) {
  group.train.Clear();
  group.large_train.Clear();
  group.samples.Clear();
  group.window.Clear();
  group.inflight_sequences_of_request.clear();
  group.inflight_sequences = 0;
  group.suspects.clear();
  group.held.clear();
}

void LoseProcess(State& s, Group& group, const Loss& loss) {
  if (loss.is_new_process) {
    if (!group.row.process_id.empty()) NoteDeath(s, group, loss.cause, loss.how);
    if (group.attached_in_term) {
      if (IsByItself(loss.cause)) BlameForCrash(s, group, loss.how);
      const bool was_here = !group.row.process_id.empty();
      const bool is_unexplained = loss.cause == LossCause::kUnknown && group.is_supervised;
      if (was_here && is_unexplained) RememberRun(s, group);
    }
    CutRecoveries(s, group);
  }
  ForgetOutstanding(group);
  AbandonWriting(s, group, /*process_lost=*/true);
  group.version_ids.clear();
  // A model that is being created can be created again.
  for (auto& [id, model] : s.models) {
    if (model.row.group == group.row.group && model.row.state == ModelState::kReady) {
      NeedRecovery(s, model);
    }
  }
  LoseVersionsOfGoneModels(s, group);
  TakeBackAll(s, group);
  group.at_worker.clear();
  group.started.clear();
  group.alone.clear();
  group.exit.reset();
  group.loaded = false;
  group.row.process_id.clear();
  PlaceSamples(s);
}

void OnWorkerDetached(State& s, const WorkerDetached& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr || !group->attached) return;
  group->attached = false;
  group->ready = false;
  group->refused.clear();
  group->refused_model.reset();
  group->detached_at = s.now;
  ForgetOutstanding(*group);
  if (event.process_gone || group->exit) {
    const Loss loss = group->exit ? Loss{true, group->exit->cause, group->exit->how}
                                  : Loss{true, event.cause, event.how};
    LoseProcess(s, *group, loss);
    s.fx.Put(PutGroup{group->row});
  }
  TellState(s, *group);
}

void OnWorkerExited(State& s, const WorkerExited& event) {
  Group* const group = Find(s.groups, event.group);
  if (group == nullptr) return;
  const bool is_current = event.pid == group->pid;
  // A parent that dials in again repeats the last end. The process that is here has not ended yet,
  // though one before it had the same pid.
  const bool is_here = is_current && !group->row.process_id.empty();
  if (!is_here) ExplainRun(s, *group, event.pid, IsByItself(event.cause), event.how);
  if (event.pid == group->last_exit_pid && !is_here) return;
  group->last_exit_pid = event.pid;
  group->next_try_at = event.restart_in < 0 ? 0 : s.now + event.restart_in;
  if (is_current && group->attached) {
    group->exit = event;  // what it said last is still to come
    return;
  }
  if (!is_current) {
    NoteDeath(s, *group, event.cause, event.how);  // it never came, or the next one was here first
  } else if (!group->row.process_id.empty()) {
    LoseProcess(s, *group, {true, event.cause, event.how});
    s.fx.Put(PutGroup{group->row});
  }
  TellState(s, *group);
}

void GiveUpLostWorkers(State& s) {
  for (auto& [name, group] : s.groups) {
    const bool waited = s.now - group.detached_at > s.options.worker_lost_timeout;
    if (group.attached || group.row.process_id.empty() || !waited) continue;
    LoseProcess(s, group, {.cause = LossCause::kUnknown, .how = "it did not come back"});
    s.fx.Put(PutGroup{group.row});
  }
}

}  // namespace lathe::engine
