#include "services/engine/core/core.h"

#include <utility>
#include <variant>

#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/checkpoints/copies.h"
#include "services/engine/core/groups/crash_attribution.h"
#include "services/engine/core/groups/group_calls.h"
#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/groups/ranks.h"
#include "services/engine/core/groups/sending.h"
#include "services/engine/core/groups/worker_group.h"
#include "services/engine/core/groups/worker_loss.h"
#include "services/engine/core/lifecycle/completion.h"
#include "services/engine/core/lifecycle/leader.h"
#include "services/engine/core/lifecycle/retention.h"
#include "services/engine/core/lifecycle/sessions.h"
#include "services/engine/core/lifecycle/submissions.h"
#include "services/engine/core/models/migration.h"
#include "services/engine/core/models/model_states.h"
#include "services/engine/core/models/offload.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/snapshots.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/requests/tenant_usage.h"
#include "services/engine/core/samplers/sample_placement.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/transfer_reports.h"
#include "services/engine/core/state/model_facts.h"
#include "services/engine/core/state/state.h"

namespace lathe::engine {
namespace {

void OnTick(State& s) {
  s.sweeps_again = SweepSessions(s);
  if (s.sweeps_again) AskToContinue(s);
  OffloadIdleModels(s);
  CloseOverdueGaps(s);
  DeclareLostWorkersDead(s);
  EvictOverdue(s);
  MigrateModels(s);
  NotifyGroupDrains(s);
  EndTransferPauses(s);
  UseRefused(s);
  HealGroups(s);
  SweepExpiredCheckpoints(s);
  PurgeOldResults(s);
  CountStorage(s);
  SendUnsent(s);
  RestartRecoveries(s);
  ScheduleSnapshots(s);
  NotifyModelStates(s);
}

// Samples that are to be placed follow in Settle.
void OnContinue(State& s) {
  s.is_continue_due = false;
  if (std::exchange(s.sweeps_again, false)) SweepSessions(s);
  ContinuePurge(s);
}

// Runs the follow-ups of a change: samples, models, queues, sessions, then a drain.
void Settle(State& s) {
  PlaceSamples(s);
  while (!s.follow_ups.models.empty()) {
    const std::string id = *s.follow_ups.models.begin();
    s.follow_ups.models.erase(s.follow_ups.models.begin());
    if (Model* const model = Find(s.models, id)) Advance(s, *model);
  }
  for (const std::string& name : s.follow_ups.groups) {
    SendNext(s, s.groups.at(name));
  }
  s.follow_ups.groups.clear();
  for (const std::string& id : s.follow_ups.sessions) EndIfComplete(s, id);
  s.follow_ups.sessions.clear();
  RemoveUnfetchedResults(s);
  AnswerDrain(s);
  NotifyGroups(s);
  NotifyTenants(s);
}

}  // namespace

struct Core::Impl {
  explicit Impl(const CoreOptions& options) : s(options) {}

  void Handle(const Loaded& event) { OnLoaded(s, event); }
  void Handle(const Tick&) { OnTick(s); }
  void Handle(const Continue&) { OnContinue(s); }
  void Handle(const Committed& event) { s.fx.Committed(event.commit_id, out); }
  void Handle(const CreateSession& event) { OnCreateSession(s, event); }
  void Handle(const Heartbeat& event) { OnHeartbeat(s, event); }
  void Handle(const FinishSession& event) { OnFinishSession(s, event); }
  void Handle(const Submit& event) { OnSubmit(s, event); }
  void Handle(const CreateSamplingSession& event) { OnCreateSamplingSession(s, event); }
  void Handle(const JoinSamplingSession& event) { OnJoinSamplingSession(s, event); }
  void Handle(const DeleteCheckpoint& event) { OnDeleteCheckpoint(s, event); }
  void Handle(const PublishCheckpoint& event) { OnPublishCheckpoint(s, event); }
  void Handle(const SetCheckpointTtl& event) { OnSetCheckpointTtl(s, event); }
  void Handle(const SetQuota& event) { OnSetQuota(s, event); }
  void Handle(const AdoptCheckpoint& event) { OnAdoptCheckpoint(s, event); }
  void Handle(const CopyCheckpoint& event) { OnCopyCheckpoint(s, event); }
  void Handle(const AssignSessionProject& event) { OnAssignSessionProject(s, event); }
  void Handle(const Delivered& event) { OnDelivered(s, event); }
  void Handle(const Drain& event) { OnDrain(s, event); }
  void Handle(const WorkerAttached& event) { OnWorkerAttached(s, event); }
  void Handle(const WorkerReady& event) { OnWorkerReady(s, event); }
  void Handle(const WorkerDetached& event) { OnWorkerDetached(s, event); }
  void Handle(const WorkerStarted& event) { OnWorkerStarted(s, event); }
  void Handle(const WorkerSampleProgress& event) { OnSampleProgress(s, event); }
  void Handle(const WorkerExited& event) { OnWorkerExited(s, event); }
  void Handle(const WorkerDone& event) { OnWorkerDone(s, event); }
  void Handle(const WorkerVersionLoaded& event) { OnVersionLoaded(s, event); }
  void Handle(const WorkerVersionServed& event) { OnVersionServed(s, event); }
  void Handle(const WorkerVersionFailed& event) { OnVersionFailed(s, event); }
  void Handle(const CancelSample& event) { OnCancelSample(s, event); }
  void Handle(const WorkerSnapshotDone& event) { OnSnapshotDone(s, event); }
  void Handle(const WorkerVersionSaved& event) { OnVersionSaved(s, event); }
  void Handle(const BodyUnavailable& event) { OnBodyUnavailable(s, event); }
  void Handle(const MoveModel& event) { OnMoveModel(s, event); }
  void Handle(const DrainGroup& event) { OnDrainGroup(s, event); }
  void Handle(const RemoveGroup& event) { OnRemoveGroup(s, event); }

  State s;
  std::vector<Action>* out = nullptr;  // actions of the current Step
};

Core::Core(CoreOptions options) : impl_(std::make_unique<Impl>(options)) {}
Core::~Core() = default;

void Core::Step(const Event& event, std::vector<Action>* out) {
  State& s = impl_->s;
  s.now = event.now;
  impl_->out = out;
  s.ending = Budget(s.options.max_swept);
  s.leaves_pieces = s.is_continue_due && !std::holds_alternative<Continue>(event.body);
  std::visit([this](const auto& body) { impl_->Handle(body); }, event.body);
  Settle(s);
  IndexOf(s);
  s.models.EndStep();
  s.fx.Finish(/*flush=*/std::holds_alternative<Tick>(event.body), out);
}

std::map<std::string, TenantUsage> Core::RecountUsage() const { return Recount(impl_->s); }

int64_t Core::num_visited() const {
  const State& s = impl_->s;
  return s.models.num_visited() + s.samplers.num_visited() + s.versions.num_visited() +
         s.num_looked_at;
}

}  // namespace lathe::engine
