#include "services/engine/core/operations.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/engine/core/checkpoints.h"
#include "services/engine/core/errors.h"
#include "services/engine/core/models.h"
#include "services/engine/core/recovery.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/sample_queue.h"

namespace lathe::engine {
namespace {

using Fit = FairQueue::Fit;

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

// "3", or "3 to 7" with any gaps between.
std::string Words(const std::vector<int64_t>& seqs) {
  if (seqs.size() == 1) return absl::StrFormat("%d", seqs.front());
  return absl::StrFormat("%d to %d", seqs.front(), seqs.back());
}

// Fails a step if its gradient lacks a part without its caller's knowledge.
bool FailIncompleteStep(State& s, Model& model, Request& request) {
  const auto failed = model.gradient.FailureUnknownTo(request.row.seq_id, request.row.accepted_at);
  const std::vector<int64_t>& dropped = model.gradient.dropped();
  if (!failed && dropped.empty()) return false;
  const std::string what =
      dropped.empty()
          ? absl::StrFormat("forward_backward seq %d failed", *failed)
          : absl::StrFormat(
                "the gradient of forward_backward seq %s was dropped while its client was silent",
                Words(dropped));
  Fail(s, request,
       FailedPrecondition("incomplete_gradient", what + "; the gradient is incomplete"));
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

void SendBarrier(State& s, Group& group, Request& request) {
  WorkerCommand command = CommandOf(s, s.models.at(request.plan->model_id), request);
  RecordDispatched(s, group, request);
  s.fx.Send(request.group, group.row.epoch, std::move(command));
}

SendTrainBatch::Item ItemOf(const Request& request) {
  return {request.row.request_id, request.row.body_id, request.row.seq_id};
}

void FillTrainBatches(State& s, Group& group) {
  SendTrainBatch batch;
  const auto add = [&](const std::string& tenant, const FairQueue::Item& item) {
    Request& request = s.requests.at(item.id);
    RecordDispatched(s, group, request);
    group.window.Add(item.id, tenant, item.tokens);
    batch.items.push_back(ItemOf(request));
    return Fit::kTake;
  };
  group.train.Take([&](const std::string& tenant, const FairQueue::Item& item) {
    return group.window.HasRoomFor(item.tokens) ? add(tenant, item) : Fit::kEnd;
  });
  group.large_train.Take([&](const std::string& tenant, const FairQueue::Item& item) {
    if (!group.window.HasRoomForLarge()) return Fit::kEnd;
    return group.window.HasRoomForLargeOf(tenant) ? add(tenant, item) : Fit::kPassTenant;
  });
  if (!batch.items.empty()) s.fx.Send(group.row.group, group.row.epoch, std::move(batch));
}

void SendOneSample(State& s, Group& group, Request& request) {
  Sampler& sampler = s.samplers.at(request.row.owner_id);
  group.inflight_sequences += request.num_samples;
  group.inflight_sequences_of_request[request.row.request_id] = request.num_samples;
  LoadVersionOnce(s, group, sampler);
  RecordDispatched(s, group, request);
  sampler.last_sampled_at = s.now;
  s.fx.Send(group.row.group, group.row.epoch,
            SendSample{.request_id = request.row.request_id,
                       .tenant_id = request.row.tenant_id,
                       .version_id = sampler.row.version_id,
                       .body_id = request.row.body_id,
                       .seed = request.plan->seed,
                       .max_tokens = request.plan->max_tokens});
}

void FillSamples(State& s, Group& group) {
  if (group.samples.empty()) return;
  int64_t planned = group.inflight_sequences;
  const auto fit = [&](const std::string&, const FairQueue::Item& item) {
    const int64_t sequences = s.requests.at(item.id).num_samples;
    if (planned > 0 && planned + sequences > s.options.max_inflight_sequences) return Fit::kEnd;
    planned += sequences;
    return Fit::kTake;
  };
  for (const FairQueue::Item& item : group.samples.Take(fit)) {
    SendOneSample(s, group, s.requests.at(item.id));
  }
}

void SendQuarantined(State& s, Group& group, Request& request) {
  if (request.row.op_class == OpClass::kSample) return SendOneSample(s, group, request);
  if (!TraitsOf(request.row.kind).is_batched) return SendBarrier(s, group, request);
  RecordDispatched(s, group, request);
  s.fx.Send(group.row.group, group.row.epoch, SendTrainBatch{{ItemOf(request)}});
}

// The oldest quarantined request. Among the requests of one model, the smallest seq comes first: an
// exact gradient is a sum in that order.
std::string NextQuarantined(const State& s, const Group& group) {
  const Request* next = &s.requests.at(group.quarantined.begin()->second);
  for (const auto& [order, id] : group.quarantined) {
    const Request& other = s.requests.at(id);
    const bool is_of_same =
        other.row.op_class == next->row.op_class && other.row.owner_id == next->row.owner_id;
    if (is_of_same && other.row.seq_id < next->row.seq_id) next = &other;
  }
  return next->row.request_id;
}

// Sends a quarantined request once the worker has nothing else to do.
void SendNextQuarantined(State& s, Group& group) {
  if (!group.at_worker.empty()) return;
  if (group.alone.empty()) StartRecoveries(s, group);  // recoveries come first
  if (IsRecovering(s, group) || group.quarantined.empty()) return;
  if (group.alone.empty()) group.alone = NextQuarantined(s, group);
  SendQuarantined(s, group, s.requests.at(group.alone));
}

}  // namespace

void Begin(State& s, Model& model, Request& request) {
  if (FailAfterFailedLoad(s, model, request) || FailNameClash(s, model, request)) return;
  if (EndOnLostModel(s, model, request) || FailUnloadable(s, model, request)) return;
  if (request.row.kind == OperationKind::kOptimStep && FailIncompleteStep(s, model, request)) {
    return;
  }
  SendToGroup(s, request);
}

void SendToGroup(State& s, Request& request) {
  Group* const group = Find(s.groups, request.group);
  if (group == nullptr || !group->usable() || !group->can_train()) return;
  const RequestRow& row = request.row;
  s.dirty_groups.insert(request.group);
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

void SendNext(State& s, Group& group) {
  if (!group.usable()) return;
  if (!group.quarantined.empty()) return SendNextQuarantined(s, group);
  std::map<int64_t, std::string> held;
  held.swap(group.held);
  for (const auto& [order, id] : held) SendBarrier(s, group, s.requests.at(id));
  FillTrainBatches(s, group);
  FillSamples(s, group);
}

void OnBodyUnavailable(State& s, const BodyUnavailable& event) {
  Group* const group = Find(s.groups, event.group);
  const bool current = group != nullptr && group->attached && group->row.epoch == event.epoch;
  if (!current || OnReplayNotSent(s, event.request_id)) return;
  Request* const request = Find(s.requests, event.request_id);
  if (request == nullptr || !request->live()) return;
  TakeBack(s, *request);  // makes room for other requests
  SetGroup(s, *request, event.group);
  s.unsent_request_ids.insert(event.request_id);
}

void SendUnsent(State& s) {
  std::set<std::string> ids;
  ids.swap(s.unsent_request_ids);
  for (const std::string& id : ids) {
    Request* const request = Find(s.requests, id);
    if (request == nullptr || !request->live()) continue;
    if (request->row.state != RequestState::kAccepted) continue;  // sent to another worker
    const Model* const model = Find(s.models, request->plan->model_id);
    if (model != nullptr && model->recovery != nullptr) continue;  // sent after the recovery
    TakeBack(s, *request);  // a worker that attached meanwhile may have queued it
    if (request->row.op_class == OpClass::kSample) {
      QueueSample(s, *request);
    } else {
      SendToGroup(s, *request);
    }
  }
}

}  // namespace lathe::engine
