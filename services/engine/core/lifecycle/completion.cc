#include "services/engine/core/lifecycle/completion.h"

#include <algorithm>
#include <utility>

#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/groups/group_state.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/model_history.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/samplers.h"

namespace lathe::engine {
namespace {

// Gives the model the shape of its checkpoint. The module families that its caller asked for stay.
void TakeLoadedShape(Model& model, const WorkerDone& done) {
  if (!done.lora) return;
  LoraConfig& lora = model.row.lora;
  lora.rank = done.lora->rank;
  lora.alpha = done.lora->alpha;
  lora.seed = done.lora->seed;
  lora.target_modules = done.lora->target_modules;
}

void CompleteCreation(State& s, Model& model, Request& request, const WorkerDone& done) {
  if (request.row.kind == OperationKind::kLoadWeights) TakeLoadedShape(model, done);
  model.row.state = ModelState::kReady;
  model.snapshot_tried_at = s.now;
  PutRow(s, model);
  MakeResult result;
  result.model_id = model.row.model_id;
  if (const auto* const load = std::get_if<LoadArgs>(&request.plan->args)) {
    result.path = load->path;
    KeepCreation(s, model, {request.row.request_id, request.plan->dir, load->with_optimizer});
    model.snapshot_wanted = true;
  }
  Succeed(s, request, std::move(result));
}

void CompleteLoad(State& s, Model& model, Request& request, const WorkerDone& done) {
  TakeLoadedShape(model, done);
  if (model.row.state == ModelState::kLost) {
    ReleaseHistory(s, model);  // the load replaced all of it
    model.row.log_from_seq = request.row.seq_id - 1;
  }
  KeepForReplay(s, model, request);
  model.gradient.Apply(request.row.seq_id);
  model.snapshot_wanted = true;
  model.failed_load.reset();
  if (model.row.state == ModelState::kLost) {
    model.row.state = ModelState::kReady;
    model.row.state_reason.clear();
  }
  model.row.saved_seq = request.row.seq_id;  // the checkpoint holds this state
  PutRow(s, model);
  MakeResult result;
  result.model_id = model.row.model_id;
  result.path = std::get<LoadArgs>(request.plan->args).path;
  Succeed(s, request, std::move(result));
}

void CompleteSave(State& s, Model& model, Request& request, const WorkerDone& done) {
  MakeResult result;
  result.model_id = model.row.model_id;
  if (!request.plan->version_id.empty()) {
    result.sampling_session_id = request.plan->sampling_session_id;
    KeepForReplay(s, model, request);
    CommitPublishedVersion(s, model, request, done.version_bytes);
    return Succeed(s, request, std::move(result));
  }
  CheckpointRow row = CheckpointOf(s, model, request);
  row.size_bytes = done.size_bytes;
  row.manifest_sha256 = done.manifest_sha256;
  result.path = row.tinker_path;
  result.size_bytes = row.size_bytes;
  request.outcome = row.dir;
  if (row.kind == CheckpointKind::kTraining) {
    model.row.saved_seq = model.gradient.applied_seq();
    PutRow(s, model);
  }
  CommitCheckpoint(s, std::move(row));
  Succeed(s, request, std::move(result));
}

void CompleteUnload(State& s, Model& model, Request& request) {
  UnloadModel(s, model);
  MakeResult result;
  result.model_id = model.row.model_id;
  Succeed(s, request, std::move(result));
}

void CompleteStep(State& s, Model& model, Request& request, const WorkerDone& done) {
  KeepForReplay(s, model, request);
  model.gradient.Apply(request.row.seq_id);
  PutRow(s, model);
  EndWithWorkerResult(s, request, RequestState::kDone, done);
}

void CompleteDone(State& s, Request& request, const WorkerDone& done) {
  CountUsage(s, request, done);
  Model* const model = Find(s.models, request.plan->model_id);
  switch (request.row.kind) {
    case OperationKind::kCreateModel:
      return CompleteCreation(s, *model, request, done);
    case OperationKind::kLoadWeights:
      return request.row.op_class == OpClass::kModel ? CompleteCreation(s, *model, request, done)
                                                     : CompleteLoad(s, *model, request, done);
    case OperationKind::kSaveWeights:
    case OperationKind::kSaveWeightsForSampler:
    case OperationKind::kSaveWeightsExternal:
      return CompleteSave(s, *model, request, done);
    case OperationKind::kUnloadModel:
      return CompleteUnload(s, *model, request);
    case OperationKind::kOptimStep:
      return CompleteStep(s, *model, request, done);
    case OperationKind::kForwardBackward:
      KeepForReplay(s, *model, request);
      model->gradient.Add(request.row.seq_id, request.row.accepted_at,
                          BatchBytes(request.plan.get()));
      break;
    case OperationKind::kForward:
    case OperationKind::kSample:
      break;
  }
  EndWithWorkerResult(s, request, RequestState::kDone, done);
}

void CompleteFailed(State& s, Request& request, const WorkerDone& done) {
  Model* const model = Find(s.models, request.plan->model_id);
  const OperationKind kind = request.row.kind;
  const bool creates = request.row.op_class == OpClass::kModel;
  if (kind == OperationKind::kOptimStep && done.model) {
    model->gradient.Replace(request.row.seq_id, done.model->window);
    PutRow(s, *model);
  }
  RecordFailure(s, request, done.error->message);
  EndWithWorkerResult(s, request, RequestState::kFailed, done);
  if (creates) FailModel(s, *model, *done.error);
}

// Returns true if the worker refused a step because its state of the model differs from the ledger.
// The model is then rebuilt and the step runs again. After kMaxRefusals refusals the step fails.
bool HasOtherState(Request& request, const WorkerDone& done) {
  constexpr int64_t kMaxRefusals = 3;
  const bool is_refused = request.row.kind == OperationKind::kOptimStep && done.error &&
                          done.error->code == "state_differs";
  return is_refused && ++request.num_state_refusals <= kMaxRefusals;
}

// Ends the run of a sample at another group: this one was thought to have lost it.
void CancelElsewhere(State& s, const Request& request, const std::string& group) {
  const bool runs_elsewhere = request.group != group && IsAtWorker(s, request);
  if (!runs_elsewhere || request.row.op_class != OpClass::kSample) return;
  const int64_t epoch = s.groups.at(request.group).row.epoch;
  s.fx.Send(request.group, epoch, SendCancel{request.row.request_id});
}

}  // namespace

void OnWorkerDone(State& s, const WorkerDone& event) {
  Group* const group = Find(s.groups, event.group);
  const bool current = group != nullptr && group->attached && group->row.epoch == event.epoch;
  if (current && OnReplayDone(s, *group, event)) return;
  Request* const request = Find(s.requests, event.request_id);
  if (!current || request == nullptr || !request->live()) {
    s.fx.After(ForgetResult{event.result_id});
    // The outcome is decided, so the worker need not keep it.
    if (current) s.fx.Send(event.group, event.epoch, SendAck{{event.request_id}});
    return;
  }
  Model* const model = Find(s.models, request->plan->model_id);
  const bool is_whole = model != nullptr && model->recovery == nullptr;
  if (is_whole && HasOtherState(*request, event)) NeedRecovery(s, *model);
  if (model != nullptr && model->recovery != nullptr) {
    // The answer is about the state that is being replaced. The request runs again on the right
    // state.
    TakeBack(s, *request);
    s.fx.After(ForgetResult{event.result_id});
    return s.fx.Send(event.group, event.epoch, SendAck{{event.request_id}});
  }
  CancelElsewhere(s, *request, event.group);
  MoveToGroup(s, *request, event.group);
  if (event.error) return CompleteFailed(s, *request, event);
  RecordWorkDone(s, *group);
  if (!TraitsOf(request->row.kind).has_worker_result) s.fx.After(ForgetResult{event.result_id});
  CompleteDone(s, *request, event);
}

}  // namespace lathe::engine
