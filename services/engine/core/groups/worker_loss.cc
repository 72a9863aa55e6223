#include "services/engine/core/groups/worker_loss.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/engine/core/groups/crash_attribution.h"
#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/groups/ranks.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/models/snapshots.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/sample_placement.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

// Time for the other ranks to end after one ended in order.
constexpr int64_t kTimeToEnd = 10 * kSecond;

// A process left because it lost a peer. If parents supervise the group, they will report that
// peer's exit. Otherwise the loss counts as a crash if the peer's stream has ended too. If it has
// not, all may live and the network is broken.
bool IsCrashOfPeer(const Group& group, const Loss& loss) {
  if (loss.cause != LossCause::kPeerGone || group.is_supervised) return false;
  return std::any_of(group.ranks.begin(), group.ranks.end(), [&](const Rank& rank) {
    return !rank.attached && &rank - group.ranks.data() != loss.rank;
  });
}

// Deletes what a save may have written, as its next run uses another directory.
void DropSaveFiles(State& s, const Group& group, const Request& request) {
  const std::string& dir = request.plan->dir;
  if (dir.empty() || request.row.kind == OperationKind::kLoadWeights) return;
  s.fx.After(DeleteFiles{SaveDir(dir, group.row.group, group.row.epoch)});
}

// Takes back the requests of the group's models, in order of acceptance.
void TakeBackOperations(State& s, const Group& group) {
  std::map<int64_t, Request*> live;
  for (const std::string& id : s.models.IdsWith(group.row.group)) {
    const Model& model = std::as_const(s.models).at(id);
    if (model.num_live_requests == 0) continue;
    for (Request* const request : LiveRequestsOf(s, model)) live[request->order] = request;
  }
  for (const auto& [order, request] : live) {
    DropSaveFiles(s, group, *request);
    if (request->row.state == RequestState::kDispatched) {
      request->row.state = RequestState::kAccepted;
    }
  }
}

// An unnamed version whose model is not rebuilt is restored from disk or lost.
void LoseVersionsOfGoneModels(State& s, const Group& group) {
  std::set<std::string> lost;
  for (const std::string& model_id : s.models.IdsWith(group.row.group)) {
    if (std::as_const(s.models).at(model_id).recovery != nullptr) continue;
    lost.merge(UnnamedSamplersOf(s, model_id));
  }
  for (const std::string& id : lost) LoseVersion(s, s.samplers.at(id));
}

void RecordEnd(State& s, Group& group, const Loss& loss) {
  const bool was_here = !group.row.process_id.empty();
  const LossCause cause = IsCrashOfPeer(group, loss) ? LossCause::kCrashed : loss.cause;
  const std::string how = NameRank(group, loss.rank, loss.how);
  if (was_here && cause == LossCause::kPeerGone && group.attached_in_term) {
    RecordLostPeer(s, group, how, group.loaded);
  } else if (was_here) {
    RecordDeath(s, group, cause, how, group.loaded);
  }
  if (group.attached_in_term) {
    if (IsByItself(cause)) AttributeCrash(s, group, how);
    const bool is_unknown = cause == LossCause::kUnknown && group.is_supervised;
    const bool others_end = group.ranks.size() > 1;
    if (was_here && (is_unknown || others_end)) RecordLostRun(s, group, cause);
  }
  CutRecoveries(s, group);
}

}  // namespace

void ForgetOutstanding(Group& group) {
  group.train.Clear();
  group.large_train.Clear();
  group.samples.Clear();
  group.window.Clear();
  group.sample_window.Clear();
  group.quarantined.clear();
  group.held.clear();
}

Loss BestKnown(const Group& group, const Loss& loss) {
  const auto reported = [&](const auto& is_wanted) -> std::optional<Loss> {
    for (const Rank& rank : group.ranks) {
      const WorkerExited* const exit = ExitOfMember(group, rank);
      const bool is_one = exit != nullptr && is_wanted(exit->cause);
      if (is_one) return Loss{true, exit->cause, exit->how, exit->rank};
    }
    return std::nullopt;
  };
  if (const auto death = reported(IsDeath)) return *death;
  const bool is_guess = loss.cause == LossCause::kUnknown || loss.cause == LossCause::kPeerGone;
  const auto end = reported([](LossCause cause) { return cause == LossCause::kEnded; });
  return is_guess && end ? *end : loss;
}

void FailOverGroup(State& s, Group& group, const Loss& loss) {
  if (loss.is_new_process) RecordEnd(s, group, loss);
  ForgetOutstanding(group);
  AbandonWriting(s, group, /*process_lost=*/true);
  group.version_ids.clear();
  AbandonTransfers(s, group);
  StopReadingAll(s, group);
  // A model that is being created is created again.
  for (const std::string& id : s.models.IdsWith(group.row.group)) {
    const Model& model = std::as_const(s.models).at(id);
    const Recovery* const recovery = model.recovery.get();
    // The error of a try says nothing any more about what the model waits for.
    const bool waits = recovery != nullptr && !recovery->started && recovery->running.empty() &&
                       recovery->last_error.empty();
    if (model.row.state == ModelState::kReady && !waits) NeedRecovery(s, s.models.at(id));
  }
  LoseVersionsOfGoneModels(s, group);
  TakeBackOperations(s, group);
  PlaceAgain(s, group.row.group);
  group.at_worker.clear();
  group.started.clear();
  group.alone.clear();
  for (Rank& rank : group.ranks) {
    if (ExitOfMember(group, rank) != nullptr) rank.exit.reset();
  }
  group.loaded = false;
  group.row.process_id.clear();
}

void Detach(Group& group) {
  group.attached = false;
  group.ready = false;
  group.refused.clear();
  group.refused_model.reset();
  ForgetOutstanding(group);
}

void DeclareGroupDead(State& s, Group& group, const Loss& guess) {
  const Loss loss = BestKnown(group, guess);
  Detach(group);
  FailOverGroup(s, group, loss);
  s.fx.Put(PutGroup{group.row});
  if (loss.cause == LossCause::kEnded) {
    group.evict_at = s.now + kTimeToEnd;
  } else {
    Evict(s, group,
          absl::StrCat("a rank of the group is lost: ", NameRank(group, loss.rank, loss.how)));
  }
}

void OnWorkerDetached(State& s, const WorkerDetached& event) {
  Group* const group = Find(s.groups, event.group);
  Rank* const rank = group == nullptr ? nullptr : FindRank(*group, event.rank);
  if (rank == nullptr || !rank->attached) return;
  rank->attached = false;
  rank->detached_at = s.now;
  // The group's work needs only the stream of rank 0.
  if (event.rank == 0) {
    Detach(*group);
    group->hello.reset();
  }
  // The worker's own words say more than its exit code, which may be reported first.
  const bool explained = event.cause == LossCause::kCrashed && !event.how.empty();
  if (rank->exit && explained) rank->exit->how = absl::StrCat(rank->exit->how, ": ", event.how);
  if (event.process_gone || rank->exit) {
    const Loss loss = rank->exit ? Loss{true, rank->exit->cause, rank->exit->how, event.rank}
                                 : Loss{true, event.cause, event.how, event.rank};
    if (IsMember(*group, *rank)) {
      DeclareGroupDead(s, *group, loss);
    } else if (rank->session.empty()) {
      // The process waited for its peers. For a member of a lost set, the loss was reported
      // already.
      RecordDeath(s, *group, loss.cause, NameRank(*group, event.rank, loss.how),
                  /*was_loaded=*/false);
      rank->last_exit_pid = rank->pid;
    }
    rank->exit.reset();
  }
  NotifyState(s, *group);
}

void OnWorkerExited(State& s, const WorkerExited& event) {
  Group* const group = Find(s.groups, event.group);
  Rank* const rank = group == nullptr ? nullptr : FindRank(*group, event.rank);
  if (rank == nullptr) return;
  const bool is_current = event.pid == rank->pid;
  // A parent that reconnects repeats the last exit. The current process has not ended, even if an
  // earlier one had the same pid.
  const bool is_here = is_current && (rank->attached || IsMember(*group, *rank));
  const bool is_remembered = !is_here && AttributeExit(s, *group, event);
  if (event.pid == rank->last_exit_pid && !is_here) return;
  rank->last_exit_pid = event.pid;
  group->next_try_at = event.restart_in < 0 ? 0 : s.now + event.restart_in;
  if (is_current && rank->attached) {
    rank->exit = event;  // the last messages of its stream are still to come
    rank->exit_session = rank->session;
    return;
  }
  const bool waited = is_current && rank->session.empty() && !rank->process_id.empty();
  if (is_here) {
    rank->exit = event;
    rank->exit_session = rank->session;
    DeclareGroupDead(s, *group, {true, event.cause, event.how, event.rank});
  } else if (!is_remembered && (!is_current || waited)) {
    // The process never attached, or it attached and waited for its peers.
    RecordDeath(s, *group, event.cause, NameRank(*group, event.rank, event.how),
                /*was_loaded=*/false);
  }
  NotifyState(s, *group);
}

void DeclareLostWorkersDead(State& s) {
  for (auto& [name, group] : s.groups) {
    if (group.row.process_id.empty()) continue;
    const auto lost = std::find_if(group.ranks.begin(), group.ranks.end(), [&](const Rank& rank) {
      return !rank.attached && s.now - rank.detached_at > s.options.worker_lost_timeout;
    });
    if (lost == group.ranks.end()) continue;
    DeclareGroupDead(s, group,
                     {.cause = LossCause::kUnknown,
                      .how = "it did not reconnect",
                      .rank = lost - group.ranks.begin()});
    NotifyState(s, group);
  }
}

}  // namespace lathe::engine
