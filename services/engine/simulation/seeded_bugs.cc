#include "services/engine/simulation/seeded_bugs.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

namespace lathe::engine::simulation {
namespace {

constexpr std::array<std::pair<SeededBug, std::string_view>, 22> kNames = {{
    {SeededBug::kNone, "none"},
    {SeededBug::kNoTermCheck, "no_term_check"},
    {SeededBug::kNoDuplicateCheck, "no_duplicate_check"},
    {SeededBug::kReplayOffByOne, "replay_off_by_one"},
    {SeededBug::kLostAck, "lost_ack"},
    {SeededBug::kFsyncRemoved, "fsync_removed"},
    {SeededBug::kLateSeqRun, "late_seq_run"},
    {SeededBug::kWindowNotCompared, "window_not_compared"},
    {SeededBug::kVersionDroppedEarly, "version_dropped_early"},
    {SeededBug::kPayloadFreedEarly, "payload_freed_early"},
    {SeededBug::kGapNotCommitted, "gap_not_committed"},
    {SeededBug::kMatesFail, "mates_fail"},
    {SeededBug::kCrashUnreported, "crash_unreported"},
    {SeededBug::kRankNotFormed, "rank_not_formed"},
    {SeededBug::kPeerKept, "peer_kept"},
    {SeededBug::kSessionForgotten, "session_forgotten"},
    {SeededBug::kMigratedModelKept, "migrated_model_kept"},
    {SeededBug::kDeliveredWhenSent, "delivered_when_sent"},
    {SeededBug::kSweepForgotten, "sweep_forgotten"},
    {SeededBug::kSamplesForgotten, "samples_forgotten"},
    {SeededBug::kSessionCountDrifts, "session_count_drifts"},
    {SeededBug::kEndsCountedTwice, "ends_counted_twice"},
}};

template <typename Command>
const Command* CommandIn(const Action& action) {
  const auto* const send = std::get_if<SendToWorker>(&action);
  return send == nullptr ? nullptr : std::get_if<Command>(&send->command);
}

// Returns the row of the session that the write ends; nullptr: it ends none.
const SessionRow* EndedSession(const Write& write) {
  const auto* const put = std::get_if<PutSession>(&write);
  return put != nullptr && put->row.state == SessionState::kEnded ? &put->row : nullptr;
}

// Leaves out the counters of Steps that end a session.
void KeepCounters(std::vector<Action>& actions) {
  const bool ends = std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    const auto* const commit = std::get_if<Commit>(&action);
    return commit != nullptr &&
           std::any_of(commit->writes.begin(), commit->writes.end(),
                       [](const Write& write) { return EndedSession(write) != nullptr; });
  });
  if (!ends) return;
  std::erase_if(actions, [](const Action& a) { return std::holds_alternative<NotifyTenant>(a); });
}

}  // namespace

const std::vector<SeededBug>& AllSeededBugs() {
  static const std::vector<SeededBug> bugs = [] {
    std::vector<SeededBug> all;
    for (const auto& [bug, name] : kNames) {
      if (bug != SeededBug::kNone) all.push_back(bug);
    }
    return all;
  }();
  return bugs;
}

std::string_view NameOf(SeededBug bug) {
  return std::find_if(kNames.begin(), kNames.end(), [&](const auto& e) { return e.first == bug; })
      ->second;
}

std::optional<SeededBug> FindSeededBug(std::string_view name) {
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const auto& entry) { return entry.second == name; });
  return it == kNames.end() ? std::nullopt : std::optional(it->first);
}

// Leaves out what follows the first piece of a session's release.
void BugHooks::ForgetSweeps(Commit& commit) {
  const auto session_of = [](const DeleteSampler& write) {
    return write.sampling_session_id.substr(0, write.sampling_session_id.find(':'));
  };
  std::erase_if(commit.writes, [&](const Write& write) {
    const auto* const sampler = std::get_if<DeleteSampler>(&write);
    const SessionRow* const session = EndedSession(write);
    return (sampler != nullptr && forgotten_.contains(session_of(*sampler))) ||
           (session != nullptr && forgotten_.contains(session->session_id));
  });
  std::set<std::string> released;
  for (const Write& write : commit.writes) {
    if (const auto* const sampler = std::get_if<DeleteSampler>(&write)) {
      released.insert(session_of(*sampler));
    }
  }
  for (const Write& write : commit.writes) {
    if (const SessionRow* const session = EndedSession(write)) released.erase(session->session_id);
  }
  forgotten_.merge(released);
}

void BugHooks::ChangeWrites(Commit& commit) {
  if (bug_ == SeededBug::kSweepForgotten) ForgetSweeps(commit);
  for (Write& write : commit.writes) {
    auto* const model = std::get_if<PutModel>(&write);
    if (model != nullptr && bug_ == SeededBug::kGapNotCommitted) model->row.closed_seq = 0;
  }
  if (bug_ != SeededBug::kPayloadFreedEarly) return;
  std::vector<Write> freed;
  for (const Write& write : commit.writes) {
    const auto* const insert = std::get_if<InsertRequest>(&write);
    const bool was_sent = insert != nullptr && insert->row.state == RequestState::kDispatched;
    if (was_sent && !insert->row.body_id.empty()) freed.push_back(DropBody{insert->row.body_id});
  }
  commit.writes.insert(commit.writes.end(), freed.begin(), freed.end());
}

// Drops published versions some time after their publication.
void BugHooks::DropPublishedVersions(std::vector<Action>& actions) {
  std::vector<Action> drops;
  for (const Action& action : actions) {
    if (CommandIn<SendAck>(action) == nullptr || published_.empty()) continue;
    const SendToWorker& publish = published_.front();
    const auto& version_id = std::get<SendPublishVersion>(publish.command).version_id;
    if (random_.Chance(300)) {
      drops.push_back(SendToWorker{publish.group, publish.stream_id, publish.epoch,
                                   SendDropVersion{version_id}});
    }
    published_.erase(published_.begin());
  }
  for (const Action& action : actions) {
    if (CommandIn<SendPublishVersion>(action) != nullptr) {
      published_.push_back(std::get<SendToWorker>(action));
    }
  }
  actions.insert(actions.end(), drops.begin(), drops.end());
}

// Turns refusals of closed seqs into an acceptance and a send to the worker.
void BugHooks::RunLateSeqs(std::vector<Action>& actions) {
  std::vector<Action> changed;
  for (Action& action : actions) {
    if (CommandIn<SendTrainBatch>(action) != nullptr) {
      const auto& sent = std::get<SendToWorker>(action);
      late_ = {sent.group, sent.stream_id, sent.epoch, {}};
    }
    auto* const answer = std::get_if<Answer>(&action);
    const auto late = answer == nullptr ? gradients_.end() : gradients_.find(answer->call);
    if (late == gradients_.end()) {
      changed.push_back(std::move(action));
      continue;
    }
    const Submit submit = std::move(late->second);
    gradients_.erase(late);
    if (answer->error && answer->error->code == "seq_id_abandoned" && !late_.group.empty()) {
      answer->error.reset();
      answer->id = "late-" + submit.payload.body_id;
      const SendTrainBatch::Item item{answer->id, submit.payload.body_id, submit.seq_id};
      late_.command = SendTrainBatch{{item}};
      changed.push_back(late_);
    }
    changed.push_back(std::move(action));
  }
  actions = std::move(changed);
}

void BugHooks::KeepMigratedModels(std::vector<Action>& actions) {
  for (const Action& action : actions) {
    const auto* const commit = std::get_if<Commit>(&action);
    if (commit == nullptr) continue;
    for (const Write& write : commit->writes) {
      const auto* const put = std::get_if<PutModel>(&write);
      if (put != nullptr) homes_[put->row.model_id] = put->row.group;
    }
  }
  std::erase_if(actions, [&](const Action& action) {
    const auto* const drop = CommandIn<SendDropAdapter>(action);
    const auto home = drop == nullptr ? homes_.end() : homes_.find(drop->model_id);
    return home != homes_.end() && home->second != std::get<SendToWorker>(action).group;
  });
}

// Does the piece that was asked for before the second loss, and none after it.
void BugHooks::ForgetSamples(std::vector<Action>& actions) {
  const auto asks = [](const Action& a) { return std::holds_alternative<ContinueLater>(a); };
  is_placing_ |= std::any_of(actions.begin(), actions.end(), asks);
  if (forgets_samples_) std::erase_if(actions, asks);
}

void BugHooks::Change(EventBody& event) {
  if (std::holds_alternative<Continue>(event)) is_placing_ = false;
  if (std::holds_alternative<WorkerDetached>(event)) forgets_samples_ |= is_placing_;
  if (auto* const done = std::get_if<WorkerSnapshotDone>(&event)) {
    if (bug_ == SeededBug::kReplayOffByOne) ++done->model.applied_seq;
  }
  auto* const exited = std::get_if<WorkerExited>(&event);
  if (bug_ == SeededBug::kMatesFail && exited != nullptr) exited->cause = LossCause::kCrashed;
  if (bug_ == SeededBug::kCrashUnreported && exited != nullptr) exited->cause = LossCause::kEnded;
  auto* const progress = std::get_if<WorkerSampleProgress>(&event);
  if (bug_ == SeededBug::kEndsCountedTwice && progress != nullptr) {
    for (EndedSequences& ended : progress->ended) ended.num_ended *= 2;
  }
  auto* const attached = std::get_if<WorkerAttached>(&event);
  if (bug_ == SeededBug::kSessionForgotten && attached != nullptr) attached->session.clear();
  auto* const submit = std::get_if<Submit>(&event);
  if (bug_ == SeededBug::kLateSeqRun && submit != nullptr &&
      submit->kind == OperationKind::kForwardBackward) {
    gradients_[submit->call] = *submit;
  }
  if (bug_ != SeededBug::kNoDuplicateCheck || submit == nullptr) return;
  if (submit->op_class != OpClass::kTrain) return;
  if (!seen_.insert({submit->owner_id, submit->seq_id}).second) submit->seq_id = 0;
}

void BugHooks::Change(std::vector<Action>& actions) {
  if (bug_ == SeededBug::kNone) return;
  for (Action& action : actions) {
    if (auto* const commit = std::get_if<Commit>(&action)) ChangeWrites(*commit);
  }
  if (bug_ == SeededBug::kLostAck) {
    std::erase_if(actions, [](const Action& a) { return CommandIn<SendAck>(a) != nullptr; });
  } else if (bug_ == SeededBug::kRankNotFormed) {
    std::erase_if(actions, [](const Action& a) {
      return CommandIn<FormGroup>(a) != nullptr && std::get<SendToWorker>(a).rank > 0;
    });
  } else if (bug_ == SeededBug::kPeerKept) {
    std::erase_if(actions, [](const Action& a) { return CommandIn<SendDie>(a) != nullptr; });
  } else if (bug_ == SeededBug::kLateSeqRun) {
    RunLateSeqs(actions);
  } else if (bug_ == SeededBug::kSessionCountDrifts) {
    KeepCounters(actions);
  } else if (bug_ == SeededBug::kMigratedModelKept) {
    KeepMigratedModels(actions);
  } else if (bug_ == SeededBug::kSamplesForgotten) {
    ForgetSamples(actions);
  } else if (bug_ == SeededBug::kVersionDroppedEarly) {
    DropPublishedVersions(actions);
  } else if (bug_ == SeededBug::kWindowNotCompared) {
    const bool adopts = std::any_of(actions.begin(), actions.end(), [](const Action& a) {
      return CommandIn<AdoptGroup>(a) != nullptr;
    });
    if (!adopts) return;
    std::erase_if(actions,
                  [](const Action& a) { return CommandIn<SendClearGradient>(a) != nullptr; });
  }
}

}  // namespace lathe::engine::simulation
