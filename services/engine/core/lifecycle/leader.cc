#include "services/engine/core/lifecycle/leader.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/lifecycle/sessions.h"
#include "services/engine/core/models/model_history.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/models/snapshots.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/requests/save_sizes.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

void RestoreSessions(State& s, const StoredState& stored) {
  for (const SessionRow& row : stored.sessions) {
    Session session;
    session.row = row;
    // Silence counts only while a leader could receive signs of life.
    session.last_sign_at = std::max(row.heartbeat_at, s.now);
    session.touch_written_at = row.heartbeat_at;
    TrackSession(s, std::move(session));
    ChargeRate(s, row.tenant_id, row.created_at, /*tokens=*/0);
    s.follow_ups.sessions.insert(row.session_id);
  }
}

void RestoreModels(State& s, const StoredState& stored) {
  for (const ModelRow& row : stored.models) {
    Session* const session = Find(s.sessions, row.session_id);
    if (session == nullptr || session->row.state == SessionState::kEnded) continue;
    session->model_ids.insert(row.model_id);
    Model stored_model;
    stored_model.row = row;
    Model& model = s.models.Add(row.model_id, std::move(stored_model));
    model.row_written_at = s.now;
    model.order = SeqOrder(row.closed_seq);
    model.gradient = GradientWindow(row.applied_seq, row.gradient_from_seq);
    for (const int64_t seq : DecodeSeqs(row.kept_window))
      model.gradient.Add(seq, /*accepted_at=*/0, /*bytes=*/0);
    model.gradient.RestoreDropped(DecodeSeqs(row.dropped_window));
    if (row.is_offloaded) NeedRecovery(s, model);  // its next request resumes it
    model.snapshot_tried_at = s.now;
    s.follow_ups.models.insert(row.model_id);
  }
}

void RestoreSnapshots(State& s, const StoredState& stored) {
  for (const SnapshotRow& row : stored.snapshots) {
    if (Model* const model = Find(s.models, row.model_id)) model->snapshots.push_back(row);
  }
}

void RestoreVersions(State& s, const StoredState& stored) {
  for (const VersionRow& row : stored.versions) {
    Version version;
    version.row = row;
    version.seq_id = row.seq_id;
    IndexSaved(s, s.versions.Add(row.version_id, std::move(version)));
  }
}

// Adds versions that are not on disk, and drops unused ones. Needs the samplers and the logs.
void CompleteVersions(State& s) {
  std::set<std::string> used;
  for (const auto& [id, sampler] : s.samplers) {
    if (!sampler.row.version_dropped) used.insert(sampler.row.version_id);
  }
  for (const auto& [id, model] : s.models) {
    for (const auto& [seq, entry] : model.log.entries()) {
      const auto* const publication = std::get_if<LoggedPublication>(&entry);
      if (publication == nullptr || used.count(publication->version_id) == 0) continue;
      RecordPublication(s, publication->version_id, model, seq, publication->is_inflight);
    }
  }
  for (auto it = s.versions.begin(); it != s.versions.end();) {
    const std::string id = (it++)->first;
    if (used.count(id) == 0) DropVersion(s, id);
  }
}

void RestoreSamplers(State& s, const StoredState& stored) {
  for (const SamplerRow& row : stored.samplers) {
    const Session* const session = Find(s.sessions, row.session_id);
    if (session == nullptr || session->row.state == SessionState::kEnded) continue;
    TrackSampler(s, row);
  }
}

std::string ModelIdOf(const RequestRow& row, const Plan* plan) {
  if (row.op_class == OpClass::kTrain || row.op_class == OpClass::kUnload) return row.owner_id;
  return plan == nullptr ? "" : plan->model_id;
}

std::string SessionIdOf(State& s, const RequestRow& row, const std::string& model_id) {
  if (row.op_class == OpClass::kModel) return row.owner_id;
  if (const Model* const model = Find(s.models, model_id)) return model->row.session_id;
  const Sampler* const sampler = Find(s.samplers, row.owner_id);
  return sampler == nullptr ? "" : sampler->row.session_id;
}

// Rows of earlier releases have the directory there, or nothing.
std::string MessageOfFailedLoad(const RequestRow& row) {
  absl::string_view message = row.outcome;
  if (!absl::ConsumePrefix(&message, kFailedOutcome)) return "see its own error";
  return std::string(message);
}

void RestoreGradient(Model& model, const RequestRow& row, int64_t batch_bytes) {
  if (row.kind == OperationKind::kForwardBackward) {
    if (row.state == RequestState::kDone) {
      model.gradient.Add(row.seq_id, row.accepted_at, batch_bytes);
    }
    if (row.state == RequestState::kFailed) {
      model.gradient.AddFailure(row.seq_id, row.delivered_at, batch_bytes);
    }
  } else if (row.kind == OperationKind::kLoadWeights) {
    model.failed_load.reset();
    if (row.state == RequestState::kFailed) {
      model.failed_load = Model::FailedLoad{row.seq_id, row.delivered_at, MessageOfFailedLoad(row)};
    }
  }
}

void RestoreOrder(Model& model, const Request& request, const Plan* plan) {
  const RequestRow& row = request.row;
  model.order.Add(row.seq_id, {TraitsOf(row.kind).is_barrier, row.accepted_at});
  if (request.live()) return;
  model.order.Resolve(row.seq_id);
  if (!request.refused) RestoreGradient(model, row, BatchBytes(plan));
}

// A load that was sent to a worker keeps the files that its path named then. Other loads are
// resolved when they are ready.
void RestoreLoad(State& s, Request& request) {
  if (request.row.op_class != OpClass::kTrain || request.row.outcome.empty()) return;
  request.plan->dir = request.row.outcome;
  PinDir(s, request.plan->dir);
}

// Restores the pins and reservations of a live request.
void RestoreClaims(State& s, Request& request) {
  const Plan& plan = *request.plan;
  if (request.row.kind == OperationKind::kLoadWeights) {
    if (!plan.dir.empty()) PinDir(s, plan.dir);
    RestoreLoad(s, request);
  }
  if (plan.sampling_session_id.empty()) return;
  if (Session* const session = Find(s.sessions, request.session_id)) {
    session->sampler_seqs.insert(std::get<SaveArgs>(plan.args).sampling_session_seq_id);
  }
}

void RestoreRequest(State& s, const RequestRow& row) {
  std::optional<Plan> plan = DecodePlan(row.plan);
  const bool unreadable = !plan && row.done_at == 0;
  Request request;
  request.row = row;
  request.row.plan.clear();
  request.refused = plan && plan->refused;
  if (plan) {
    const auto* const sample = std::get_if<SampleArgs>(&plan->args);
    if (sample != nullptr) request.num_samples = sample->num_samples;
    request.idempotency_key = plan->idempotency_key;
  }
  const std::string model_id = ModelIdOf(row, plan ? &*plan : nullptr);
  request.session_id = SessionIdOf(s, row, model_id);
  Model* const model = Find(s.models, model_id);
  if (model != nullptr) request.group = model->row.group;
  const Plan* known_plan = plan ? &*plan : nullptr;
  if (row.done_at == 0) {
    if (unreadable) plan.emplace().model_id = model_id;
    if (model != nullptr) request.reserved_bytes = ExpectedSize(s, *model, row.kind, *plan);
    request.plan = std::make_unique<Plan>(*std::move(plan));
    known_plan = request.plan.get();
  }
  if (!request.refused) ChargeRate(s, row.tenant_id, row.accepted_at, row.tokens);
  Request& tracked = Track(s, std::move(request));
  if (tracked.live()) RestoreClaims(s, tracked);
  if (model != nullptr && known_plan != nullptr) RestoreForReplay(s, *model, row, *known_plan);
  if (model != nullptr && row.op_class == OpClass::kTrain)
    RestoreOrder(*model, tracked, known_plan);
  if (!tracked.live()) return;
  const bool orphan = model == nullptr && s.samplers.count(row.owner_id) == 0;
  if (unreadable || orphan) {
    Fail(s, tracked, Internal("the request was accepted by another version of the engine"));
  } else if (row.op_class == OpClass::kUnload) {
    model->unload_request_id = row.request_id;
  }
}

// Returns true if the request of a usable group can complete.
bool CanComplete(State& s, const Request& request) {
  if (request.row.op_class != OpClass::kTrain) return true;
  const Model* const model = Find(s.models, request.plan->model_id);
  return model != nullptr && (model->row.state == ModelState::kCreating ||
                              !model->order.IsMissingBelow(request.row.seq_id));
}

bool AnythingRuns(State& s) {
  if (!s.unplaced_from.empty()) return true;  // a group may run them
  return std::any_of(s.live_by_group.begin(), s.live_by_group.end(), [&](const auto& of_group) {
    const Group* const group = Find(s.groups, of_group.first);
    if (group == nullptr || !group->usable()) return false;
    return std::any_of(of_group.second.begin(), of_group.second.end(), [&](const auto& entry) {
      return CanComplete(s, s.requests.at(entry.second));
    });
  });
}

}  // namespace

void OnLoaded(State& s, const Loaded& event) {
  const StoredState& stored = event.state;
  s.term = stored.term;
  s.random.seed(event.random_seed);
  s.purged_at = s.now;
  NotifyNoGroup(s);
  for (const BaseModelRow& row : stored.base_models) s.base_models[row.name] = row;
  for (const GroupRow& row : stored.groups) {
    Group& group = s.groups.emplace(row.group, Group(row, s.options)).first->second;
    group.ranks[0].detached_at = s.now;
    group.last_usable_at = s.now;
    s.fx.After(NotifyQueueState{row.group, /*paused=*/true, "waiting for a worker"});
  }
  for (const CheckpointRow& row : stored.checkpoints) {
    if (row.state != CheckpointState::kComplete) continue;
    TrackCheckpoint(s, row);
  }
  for (const QuotaRow& row : stored.quotas) s.quotas[row.tenant_id] = row;
  RestoreSessions(s, stored);
  RestoreModels(s, stored);
  RestoreSnapshots(s, stored);
  RestoreSamplers(s, stored);
  RestoreVersions(s, stored);
  // Sorts pointers, as rows may be many and large.
  std::vector<const RequestRow*> rows;
  for (const RequestRow& row : stored.requests) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](const RequestRow* a, const RequestRow* b) {
    return a->accepted_at < b->accepted_at;
  });
  for (const RequestRow* const row : rows) RestoreRequest(s, *row);
  CompleteVersions(s);
  for (auto& [id, model] : s.models) TrimHistory(s, model);
  // A store without an earlier leader has no files of its own: those on disk belong to another
  // store.
  if (s.term > 1) DropUnneededFiles(s);
}

void OnDrain(State& s, const Drain& event) {
  s.draining = true;
  s.drain_calls.push_back(event.call);
}

void AnswerDrain(State& s) {
  if (s.drain_calls.empty() || AnythingRuns(s) || IsWritingForDrain(s)) return;
  Answer answer;
  answer.pending_requests = static_cast<int64_t>(s.live.size());
  for (const auto& [id, model] : s.models) {
    const bool unsaved = model.gradient.applied_seq() > model.row.saved_seq;
    const bool is_gone = model.row.state != ModelState::kReady || model.row.is_offloaded;
    if (unsaved && !is_gone) answer.unsaved_model_ids.push_back(id);
  }
  for (const CallId call : s.drain_calls) {
    answer.call = call;
    s.fx.After(answer);
  }
  s.drain_calls.clear();
}

}  // namespace lathe::engine
