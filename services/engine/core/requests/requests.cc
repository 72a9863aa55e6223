#include "services/engine/core/requests/requests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/save_sizes.h"
#include "services/engine/core/requests/tenant_usage.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

bool IsSample(const Request& request) { return request.row.op_class == OpClass::kSample; }

Model* ModelOf(State& s, const Request& request) {
  return request.plan == nullptr ? nullptr : Find(s.models, request.plan->model_id);
}

void CountQueued(State& s, const Request& request, int64_t sign) {
  const std::string& tenant_id = request.row.tenant_id;
  const int64_t bytes = sign * request.row.body_bytes;
  const bool had_rows = UsageOf(s, tenant_id).num_rows > 0;
  ChangeUsage(s, tenant_id, &TenantUsage::num_rows, sign);
  ChangeUsage(s, tenant_id, &TenantUsage::bytes, bytes);
  ChangeReserved(s, request, sign);
  s.total_usage.num_rows += sign;
  s.total_usage.bytes += bytes;
  const bool has_rows = UsageOf(s, tenant_id).num_rows > 0;
  s.num_queueing_tenants += (has_rows ? 1 : 0) - (had_rows ? 1 : 0);
}

void Count(State& s, const Request& request, int64_t sign) {
  CountQueued(s, request, sign);
  if (Session* const session = Find(s.sessions, request.session_id)) {
    session->num_live_requests += sign;
    if (IsSample(request) && sign > 0) {
      session->samples.emplace(request.order, request.row.request_id);
    } else if (IsSample(request)) {
      session->samples.erase(request.order);
    }
    if (sign < 0) s.follow_ups.sessions.insert(request.session_id);
  }
  if (Model* const model = ModelOf(s, request)) {
    model->num_live_requests += sign;
    if (sign < 0) s.follow_ups.models.insert(model->row.model_id);
  }
  if (!IsSample(request)) return;
  if (Sampler* const sampler = Find(s.samplers, request.row.owner_id)) {
    if (sign > 0) {
      sampler->pending.emplace(request.order, request.row.request_id);
    } else {
      sampler->pending.erase(request.order);
    }
  }
}

int64_t ForgottenAt(const State& s, const RequestRow& row) {
  if (row.delivered_at > 0) return row.delivered_at + s.options.result_kept_after_delivery;
  return row.done_at + s.options.result_kept_undelivered;
}

// The time from which the ledger need not remember the request for its result; 0: it needs to.
int64_t ForgettableFrom(const RequestRow& row) {
  if (row.delivered_at > 0) return row.delivered_at;
  return row.result_bytes < 0 ? row.done_at : 0;
}

void DropFromRetention(State& s, const RequestRow& row) {
  s.retention.erase({ForgottenAt(s, row), row.request_id});
  s.forgettable.erase({ForgettableFrom(row), row.request_id});
  RemoveUnfetched(s, row);
}

void LeaveLive(State& s, const Request& request) {
  const auto it = s.live_by_group.find(request.group);
  it->second.erase(request.order);
  if (it->second.empty()) s.live_by_group.erase(it);
}

void LeaveGroup(State& s, const Request& request) {
  Group* const group = Find(s.groups, request.group);
  if (group == nullptr) return;
  const std::string& id = request.row.request_id;
  s.follow_ups.groups.insert(request.group);
  group->at_worker.erase(id);
  group->started.erase(id);
  group->quarantined.erase(request.order);
  group->held.erase(request.order);
  if (group->alone == id) group->alone.clear();
  if (IsSample(request)) {
    group->samples.Remove(request.row.tenant_id, request.row.owner_id, id);
    group->sample_window.Remove(id);
    return;
  }
  group->train.Remove(request.row.tenant_id, request.plan->model_id, id);
  group->large_train.Remove(request.row.tenant_id, request.plan->model_id, id);
  group->window.Remove(id);
}

// Releases files that only this request needed.
void ReleaseFiles(State& s, const Request& request, RequestState state) {
  const std::string& dir = request.plan->dir;
  if (dir.empty()) return;
  if (request.row.kind == OperationKind::kLoadWeights) {
    UnpinDir(s, dir);
  } else if (state == RequestState::kFailed) {
    s.fx.After(DeleteFiles{SaveDir(dir, request.group, request.row.epoch)});
  }
}

// Returns true if the request's body may be needed to rebuild the model.
bool IsLogged(State& s, const Request& request) {
  const RequestRow& row = request.row;
  const Model* const model = ModelOf(s, request);
  if (row.state != RequestState::kDone || model == nullptr) return false;
  return row.op_class == OpClass::kTrain && row.kind == OperationKind::kForwardBackward &&
         model->log.Find(row.seq_id) != nullptr;
}

// The result of a request. Its size is at least 1, as 0 means that a row has no result.
struct ResultRef {
  std::string id;
  int64_t bytes = 1;
};

// Ends a request, except for the encoding of its result.
void End(State& s, Request& request, RequestState state, const ResultRef& result,
         bool from_worker) {
  RequestRow& row = request.row;
  row.state = state;
  row.done_at = s.now;
  row.result_bytes = std::max<int64_t>(1, result.bytes);
  CompleteRequest complete{row.request_id, state, result.id, s.now};
  complete.result_bytes = row.result_bytes;
  complete.outcome = std::move(request.outcome);
  if (IsSample(request)) {
    complete.completion_number = CompletionNumber(s.term, ++s.num_completed_samples);
  }
  s.fx.Put(std::move(complete));
  s.fx.After(NotifyDone{row.request_id});
  if (!row.body_id.empty()) {
    if (!IsLogged(s, request)) s.fx.Put(DropBody{row.body_id});
    s.fx.After(ForgetBody{row.body_id});
  }
  const Group* const group = Find(s.groups, request.group);
  if (from_worker && group != nullptr) {
    s.fx.Send(request.group, group->row.epoch, SendAck{{row.request_id}});
  }
  if (row.op_class == OpClass::kTrain) {
    if (Model* const model = ModelOf(s, request)) model->order.Resolve(row.seq_id);
  }
  ReleaseFiles(s, request, state);
  LeaveGroup(s, request);
  Count(s, request, -1);
  s.live.erase(request.order);
  LeaveLive(s, request);
  AddToRetention(s, row);
  request.plan.reset();
}

std::string CoreResultId(const Request& request) { return "core-" + request.row.request_id; }

// Names the request's result and returns how it ends the request. The size leaves out what encoding
// adds.
ResultRef Name(const Request& request, MakeResult& result) {
  result.result_id = CoreResultId(request);
  result.request_id = request.row.request_id;
  result.kind = request.row.kind;
  size_t bytes = result.model_id.size() + result.path.size() + result.sampling_session_id.size();
  if (result.error) {
    bytes += result.error->code.size() + result.error->field.size() + result.error->message.size();
  }
  return {result.result_id, static_cast<int64_t>(bytes)};
}

Answer SubmitAnswer(CallId call, const Request& request) {
  Answer answer;
  answer.call = call;
  answer.id = request.row.request_id;
  answer.group = request.group;
  for (int64_t i = 0; i < request.num_samples; ++i) {
    answer.sample_sequence_ids.push_back(
        absl::StrFormat("%s:%d:%d", request.row.owner_id, request.row.seq_id, i));
  }
  return answer;
}

Request MakeRequest(State& s, const Submit& submit, int64_t seq_id) {
  Request request;
  RequestRow& row = request.row;
  row.request_id = "req-" + NewId(s);
  row.tenant_id = submit.tenant_id;
  row.owner_id = submit.owner_id;
  row.op_class = submit.op_class;
  row.seq_id = seq_id;
  row.kind = submit.kind;
  row.content_hash = submit.content_hash;
  row.accepted_at = s.now;
  return request;
}

void Insert(State& s, const Request& request, const Plan& plan) {
  RequestRow row = request.row;
  row.plan = EncodePlan(plan);
  s.fx.Put(InsertRequest{std::move(row)});
}

// Place of a training request's idempotency key among the keys. No training request has seq 0, and
// no id of a model has a space.
RequestKey KeyOfName(const std::string& model_id, const std::string& key) {
  return {absl::StrCat(model_id, " ", key), OpClass::kTrain, 0};
}

// Forgets that `key` names the request.
void DropKey(State& s, const RequestKey& key, const std::string& request_id) {
  const auto found = s.request_ids.find(key);
  if (found != s.request_ids.end() && found->second == request_id) s.request_ids.erase(found);
}

}  // namespace

Request* FindByKey(State& s, const std::string& owner_id, OpClass op_class, int64_t seq_id) {
  const std::string* const id = Find(s.request_ids, RequestKey(owner_id, op_class, seq_id));
  return id == nullptr ? nullptr : Find(s.requests, *id);
}

Request* FindByIdempotencyKey(State& s, const std::string& model_id, const std::string& key) {
  const std::string* const id = Find(s.request_ids, KeyOfName(model_id, key));
  return id == nullptr ? nullptr : Find(s.requests, *id);
}

Request& Track(State& s, Request request) {
  const std::string id = request.row.request_id;
  const RequestRow& row = request.row;
  request.order = ++s.last_order;
  s.request_ids[RequestKey(row.owner_id, row.op_class, row.seq_id)] = id;
  if (!request.idempotency_key.empty()) {
    s.request_ids[KeyOfName(row.owner_id, request.idempotency_key)] = id;
  }
  if (request.live()) {
    s.live[request.order] = id;
    s.live_by_group[request.group][request.order] = id;
    Count(s, request, +1);
    if (request.group != request.notified_group) s.follow_ups.requests.insert(id);
  } else {
    AddToRetention(s, row);
  }
  return s.requests[id] = std::move(request);
}

Request& Accept(State& s, const Submit& submit, int64_t seq_id, const std::string& session_id,
                const std::string& group, Plan plan) {
  Request request = MakeRequest(s, submit, seq_id);
  request.row.body_id = submit.payload.body_id;
  request.row.body_bytes = submit.payload.bytes;
  request.row.tokens = submit.payload.tokens;
  request.session_id = session_id;
  request.group = request.notified_group = group;
  if (const auto* const sample = std::get_if<SampleArgs>(&plan.args)) {
    request.num_samples = sample->num_samples;
  }
  if (const Model* const model = Find(s.models, plan.model_id)) {
    request.reserved_bytes = ExpectedSize(s, *model, submit.kind, plan);
  }
  if (!HasKey(submit)) request.idempotency_key = plan.idempotency_key = submit.idempotency_key;
  ChargeRate(s, request.row.tenant_id, s.now, request.row.tokens);
  Insert(s, request, plan);
  request.plan = std::make_unique<Plan>(std::move(plan));
  s.body_kept = true;
  Request& tracked = Track(s, std::move(request));
  s.fx.After(SubmitAnswer(submit.call, tracked));
  return tracked;
}

void RefuseAndConsume(State& s, const Submit& submit, int64_t seq_id, ErrorInfo error) {
  Request request = MakeRequest(s, submit, seq_id);
  request.row.state = RequestState::kFailed;
  request.row.done_at = s.now;
  request.refused = true;
  Plan plan;
  plan.refused = true;
  Insert(s, request, plan);
  Track(s, std::move(request));
  AnswerError(s, submit.call, std::move(error));
}

void AnswerDuplicate(State& s, const Submit& submit, const Request& request) {
  if (auto error = WhyNotDuplicate(submit, request.row, request.refused)) {
    return AnswerError(s, submit.call, *std::move(error));
  }
  s.fx.After(SubmitAnswer(submit.call, request));
}

void SetGroup(State& s, Request& request, const std::string& group) {
  if (request.live() && group != request.group) {
    s.live_by_group[group][request.order] = request.row.request_id;
    LeaveLive(s, request);
  }
  request.group = group;
  if (group != request.notified_group) s.follow_ups.requests.insert(request.row.request_id);
}

void NotifyGroups(State& s) {
  for (const std::string& id : s.follow_ups.requests) {
    Request* const request = Find(s.requests, id);
    const bool is_changed =
        request != nullptr && request->live() && request->group != request->notified_group;
    if (!is_changed) continue;
    request->notified_group = request->group;
    s.fx.After(NotifyGroup{id, request->group});
  }
  s.follow_ups.requests.clear();
}

void MoveToGroup(State& s, Request& request, const std::string& group) {
  if (request.group == group) return;
  LeaveGroup(s, request);
  SetGroup(s, request, group);
}

bool IsAtWorker(const State& s, const Request& request) {
  const Group* const group = Find(s.groups, request.group);
  return group != nullptr && group->at_worker.count(request.row.request_id) > 0;
}

bool MayRun(const State& s, const Request& request) {
  const Group* const group = Find(s.groups, request.group);
  return group != nullptr && !group->row.process_id.empty() &&
         request.row.state == RequestState::kDispatched && request.row.epoch == group->row.epoch;
}

void TakeBack(State& s, Request& request) {
  LeaveGroup(s, request);
  if (request.row.state == RequestState::kDispatched) request.row.state = RequestState::kAccepted;
}

void EndWithWorkerResult(State& s, Request& request, RequestState state, const WorkerDone& done) {
  End(s, request, state, {done.result_id, done.result_bytes}, /*from_worker=*/true);
}

void Succeed(State& s, Request& request, MakeResult result, bool from_worker) {
  const ResultRef ref = Name(request, result);
  s.fx.Now(std::move(result));
  End(s, request, RequestState::kDone, ref, from_worker);
}

void Fail(State& s, Request& request, const ErrorInfo& error, bool from_worker) {
  MakeResult result;
  result.error = error;
  const ResultRef ref = Name(request, result);
  s.fx.Now(std::move(result));
  RecordFailure(s, request, error.message);
  End(s, request, RequestState::kFailed, ref, from_worker);
}

void RecordFailure(State& s, Request& request, const std::string& message) {
  Model* const model = ModelOf(s, request);
  if (model == nullptr) return;
  if (request.row.op_class == OpClass::kUnload) model->unload_request_id.clear();
  if (request.row.op_class != OpClass::kTrain) return;
  if (request.row.kind == OperationKind::kForwardBackward) {
    model->gradient.AddFailure(request.row.seq_id, /*delivered_at=*/0,
                               BatchBytes(request.plan.get()));
  } else if (request.row.kind == OperationKind::kLoadWeights) {
    model->failed_load = Model::FailedLoad{request.row.seq_id, 0, message};
    request.outcome = absl::StrCat(kFailedOutcome, message);
  }
}

void AddToRetention(State& s, const RequestRow& row) {
  s.retention.emplace(ForgottenAt(s, row), row.request_id);
  const int64_t from = ForgettableFrom(row);
  if (from > 0) s.forgettable.emplace(from, row.request_id);
  AddUnfetched(s, row);
}

void Forget(State& s, const Request& request) {
  const std::string id = request.row.request_id;
  const RequestRow& row = request.row;
  DropFromRetention(s, row);
  DropKey(s, RequestKey(row.owner_id, row.op_class, row.seq_id), id);
  if (!request.idempotency_key.empty()) {
    DropKey(s, KeyOfName(row.owner_id, request.idempotency_key), id);
  }
  s.requests.erase(id);
}

void RemoveResult(State& s, Request& request) {
  RequestRow& row = request.row;
  DropFromRetention(s, row);
  row.result_bytes = -1;
  AddToRetention(s, row);
  s.fx.PutLater(DropResult{row.request_id});
}

void OnDelivered(State& s, const Delivered& event) {
  Request* const request = Find(s.requests, event.request_id);
  if (request == nullptr || request->live() || request->row.delivered_at > 0) return;
  RequestRow& row = request->row;
  if (event.tenant_id != row.tenant_id) return;
  DropFromRetention(s, row);
  row.delivered_at = s.now;
  AddToRetention(s, row);
  s.fx.PutLater(MarkDelivered{row.request_id, s.now});
  if (row.op_class != OpClass::kTrain || row.state != RequestState::kFailed) return;
  Model* const model = Find(s.models, row.owner_id);
  if (model == nullptr) return;
  model->gradient.MarkDelivered(row.seq_id, s.now);
  if (model->failed_load && model->failed_load->seq_id == row.seq_id) {
    model->failed_load->delivered_at = s.now;
  }
}

}  // namespace lathe::engine
