#include "services/engine/core/models/operations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {
namespace {

// "3", or "3 to 7" with any gaps between.
std::string Words(const std::vector<int64_t>& seqs) {
  if (seqs.size() == 1) return absl::StrFormat("%d", seqs.front());
  return absl::StrFormat("%d to %d", seqs.front(), seqs.back());
}

// Fails a step whose gradient lacks a part, and clears the gradient.
bool FailIncompleteStep(State& s, Model& model, Request& request) {
  const auto failed = model.gradient.SpoilingFailure(request.row.seq_id, request.row.accepted_at);
  const std::vector<int64_t>& dropped = model.gradient.dropped();
  if (!failed && dropped.empty()) return false;
  const std::string what =
      dropped.empty()
          ? absl::StrFormat("forward_backward seq %d failed", *failed)
          : absl::StrFormat(
                "the gradient of forward_backward seq %s was dropped while its client was silent",
                Words(dropped));
  Fail(s, request,
       FailedPrecondition("incomplete_gradient",
                          what + "; the gradient is incomplete, so it was cleared and nothing was "
                                 "applied: send the whole batch and the optim_step again"));
  model.gradient.Clear(request.row.seq_id);
  PutRow(s, model);
  if (const Group* const group = Find(s.groups, model.row.group)) {
    s.fx.Send(model.row.group, group->row.epoch, SendClearGradient{model.row.model_id});
  }
  return true;
}

bool FailAfterFailedLoad(State& s, const Model& model, Request& request) {
  if (!model.failed_load || request.row.op_class != OpClass::kTrain) return false;
  const Model::FailedLoad& load = *model.failed_load;
  if (load.delivered_at > 0 && load.delivered_at <= request.row.accepted_at) return false;
  if (request.row.kind == OperationKind::kLoadWeights) return false;
  Fail(s, request,
       FailedPrecondition("load_failed", absl::StrFormat("load_weights seq %d failed: %s",
                                                         load.seq_id, load.message)));
  return true;
}

// Ends an operation on a lost model. Only a load continues there.
bool EndOnLostModel(State& s, Model& model, Request& request) {
  const OperationKind kind = request.row.kind;
  if (model.row.state != ModelState::kLost || kind == OperationKind::kLoadWeights) return false;
  if (kind == OperationKind::kUnloadModel) {
    EndUnload(s, model, request);
  } else {
    Fail(s, request, ReasonOf(model));
  }
  return true;
}

bool FailNameClash(State& s, const Model& model, Request& request) {
  const auto* const save = std::get_if<SaveArgs>(&request.plan->args);
  if (save == nullptr || save->name.empty() || save->overwrite) return false;
  const std::string path = CheckpointPath(model.row.model_id, KindOf(request), save->name);
  if (FindUsable(s, model.row.tenant_id, path) == nullptr) return false;
  Fail(s, request,
       FailedPrecondition("checkpoint_exists", absl::StrFormat("checkpoint %s exists", path)));
  return true;
}

// Resolves the path of a load when the load is ready, as the save before it may have just written
// the checkpoint. Fails the load if there is no usable checkpoint.
bool FailUnloadable(State& s, const Model& model, Request& request) {
  const bool unresolved = request.row.kind == OperationKind::kLoadWeights &&
                          request.row.op_class == OpClass::kTrain && request.plan->dir.empty();
  if (!unresolved) return false;
  const auto error = ResolveLoad(s, model, request);
  if (error) Fail(s, request, *error);
  return error.has_value();
}

WorkerCommand OptimStepCommand(const Model& model, const Request& request) {
  SendOptimStep step;
  step.request_id = request.row.request_id;
  step.model_id = model.row.model_id;
  step.seq_id = request.row.seq_id;
  step.expected_applied_seq = model.gradient.applied_seq();
  step.window = model.gradient.seqs();
  step.adam_params = std::get<OptimStepArgs>(request.plan->args).adam_params;
  return step;
}

WorkerCommand SaveCommand(State& s, const Model& model, const Request& request) {
  const RequestRow& row = request.row;
  const Plan& plan = *request.plan;
  if (!plan.version_id.empty()) {
    return SendPublishVersion{row.request_id, model.row.model_id, row.seq_id, plan.version_id,
                              std::get<SaveArgs>(plan.args).inflight};
  }
  return SendSaveCheckpoint{row.request_id, CheckpointOf(s, model, request), row.seq_id, s.term,
                            std::get<SaveArgs>(plan.args).age_recipients};
}

WorkerCommand CommandOf(State& s, const Model& model, const Request& request) {
  const RequestRow& row = request.row;
  const Plan& plan = *request.plan;
  switch (row.kind) {
    case OperationKind::kCreateModel:
      return SendCreateAdapter{row.request_id, model.row.model_id, model.row.lora};
    case OperationKind::kLoadWeights: {
      const auto& load = std::get<LoadArgs>(plan.args);
      const int64_t seq_id = load.creates_model ? 0 : row.seq_id;
      return SendLoadAdapter{row.request_id, model.row.model_id, seq_id, plan.dir,
                             load.with_optimizer};
    }
    case OperationKind::kOptimStep:
      return OptimStepCommand(model, request);
    case OperationKind::kUnloadModel:
      return SendDropAdapter{row.request_id, model.row.model_id};
    default:
      return SaveCommand(s, model, request);
  }
}

// Starts an operation that is ready: sends it, queues it for a batch, or ends it.
void Begin(State& s, Model& model, Request& request) {
  if (FailAfterFailedLoad(s, model, request) || FailNameClash(s, model, request)) return;
  if (EndOnLostModel(s, model, request) || FailUnloadable(s, model, request)) return;
  if (request.row.kind == OperationKind::kOptimStep && FailIncompleteStep(s, model, request)) {
    return;
  }
  SendToGroup(s, request);
}

// Returns true if the operation has started.
bool IsBegun(const Model& model, const Request& request) {
  switch (request.row.op_class) {
    case OpClass::kModel:
      return true;
    case OpClass::kTrain:
      return model.order.IsIssued(request.row.seq_id);
    case OpClass::kUnload:  // Advance sends others when they are ready
      return request.row.state == RequestState::kDispatched;
    case OpClass::kSample:
      return false;
  }
  return false;
}

}  // namespace

void RecordDispatched(State& s, Group& group, Request& request) {
  group.at_worker.insert(request.row.request_id);
  request.row.state = RequestState::kDispatched;
  request.row.epoch = group.row.epoch;
  const bool is_load = request.row.kind == OperationKind::kLoadWeights;
  const std::string outcome = is_load ? request.plan->dir : "";
  if (RequestRow* const row = s.fx.InsertedInThisStep(request.row.request_id)) {
    row->state = request.row.state;
    row->epoch = request.row.epoch;
    row->outcome = outcome;
  } else if (is_load) {
    // Must be durable before the worker may have read the files: another leader must read the same.
    s.fx.Put(MarkDispatched{request.row.request_id, group.row.epoch, outcome});
  } else {
    s.fx.PutLater(MarkDispatched{request.row.request_id, group.row.epoch});
  }
}

void SendBarrier(State& s, Group& group, Request& request) {
  WorkerCommand command = CommandOf(s, s.models.at(request.plan->model_id), request);
  RecordDispatched(s, group, request);
  s.fx.Send(request.group, group.row.epoch, std::move(command));
}

void SendToGroup(State& s, Request& request) {
  Group* const group = Find(s.groups, request.group);
  if (group == nullptr || !group->usable() || !group->can_train()) return;
  const RequestRow& row = request.row;
  s.follow_ups.groups.insert(request.group);
  if (request.is_quarantined) {
    group->quarantined[request.order] = row.request_id;
  } else if (TraitsOf(row.kind).is_batched) {
    const int64_t tokens = std::max<int64_t>(1, row.tokens);
    FairQueue& queue = group->window.IsLarge(tokens) ? group->large_train : group->train;
    queue.Push(row.tenant_id, row.owner_id, {row.request_id, tokens});
  } else if (!group->quarantined.empty()) {
    group->held[request.order] = row.request_id;
  } else {
    SendBarrier(s, *group, request);
  }
}

void AddBegun(State& s, const Model& model, std::map<int64_t, Request*>& begun) {
  const ModelRow& row = model.row;
  const auto add = [&](Request* request) {
    const bool is_live = request != nullptr && request->live();
    if (is_live && IsBegun(model, *request)) begun[request->order] = request;
  };
  for (const int64_t seq : model.order.Issued()) {
    add(FindByKey(s, row.model_id, OpClass::kTrain, seq));
  }
  add(FindByKey(s, row.session_id, OpClass::kModel, row.model_seq_id));
  add(Find(s.requests, model.unload_request_id));
}

void ResumeModel(State& s, Model& model) {
  std::map<int64_t, Request*> begun;
  AddBegun(s, model, begun);
  for (const auto& [order, request] : begun) SendToGroup(s, *request);
}

void Advance(State& s, Model& model) {
  if (model.row.state == ModelState::kCreating || model.recovery != nullptr) return;
  if (model.migrating_since > 0) return;  // starts after the migration
  // Starting an operation may end it at once, which may make the next one ready.
  for (auto ready = model.order.TakeReady(); !ready.empty(); ready = model.order.TakeReady()) {
    for (const int64_t seq : ready) {
      Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
      if (request != nullptr && request->live()) Begin(s, model, *request);
    }
  }
  if (model.unload_request_id.empty() || !model.order.Unresolved().empty()) return;
  Request* const unload = Find(s.requests, model.unload_request_id);
  if (unload != nullptr && unload->live() && unload->row.state == RequestState::kAccepted) {
    if (!AreVersionsBeingSaved(s, model)) Begin(s, model, *unload);
  }
}

void CloseGaps(State& s, Model& model) { CloseGapsThrough(s, model, model.order.max_seq()); }

void CloseGapsThrough(State& s, Model& model, int64_t seq) {
  if (!model.order.IsMissingBelow(seq + 1)) return;
  model.order.Close(seq);
  PutRow(s, model);
  s.follow_ups.models.insert(model.row.model_id);
}

void CloseOverdueGaps(State& s) {
  for (const std::string& id : IndexOf(s).with_gap.Next(s.options.max_swept)) {
    const SeqOrder& order = std::as_const(s.models).at(id).order;
    const auto overdue = order.OverdueAboveGap(s.now - s.options.gap_timeout);
    if (overdue) CloseGapsThrough(s, s.models.at(id), *overdue - 1);
  }
}

}  // namespace lathe::engine
