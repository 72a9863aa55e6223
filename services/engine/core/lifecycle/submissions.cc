#include "services/engine/core/lifecycle/submissions.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/core/lifecycle/sessions.h"
#include "services/engine/core/models/model_end.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/offload.h"
#include "services/engine/core/models/operations.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/base_models.h"
#include "services/engine/core/state/errors.h"
#include "services/engine/core/state/model_facts.h"
#include "services/engine/core/state/needed_files.h"

namespace lathe::engine {
namespace {

constexpr int64_t kRowInterval = 60 * kSecond;

// The session and the model of a submission.
struct Subject {
  Session* session = nullptr;
  Model* model = nullptr;  // kTrain and kUnload
};

// Models and samplers end with their session, whose id is the prefix of theirs.
ErrorInfo WhyAbsent(State& s, const Submit& submit, const char* what) {
  const std::string session_id = submit.owner_id.substr(0, submit.owner_id.find(':'));
  const Session* const session = FindSession(s, submit.tenant_id, session_id);
  const auto refusal = session == nullptr ? std::nullopt : RefusalOf(*session);
  return refusal.value_or(NotFound(what, submit.owner_id));
}

std::optional<ErrorInfo> FindSubject(State& s, const Submit& submit, Subject& subject) {
  switch (submit.op_class) {
    case OpClass::kTrain:
    case OpClass::kUnload:
      subject.model = FindModel(s, submit.tenant_id, submit.owner_id);
      if (subject.model == nullptr) return WhyAbsent(s, submit, "model");
      subject.session = &s.sessions.at(subject.model->row.session_id);
      return std::nullopt;
    case OpClass::kModel:
      subject.session = FindSession(s, submit.tenant_id, submit.owner_id);
      if (subject.session == nullptr) return NotFound("session", submit.owner_id);
      return std::nullopt;
    case OpClass::kSample:
      break;
  }
  const Sampler* const sampler = FindSampler(s, submit.tenant_id, submit.owner_id);
  if (sampler == nullptr) return WhyAbsent(s, submit, "sampling_session");
  subject.session = &s.sessions.at(sampler->row.session_id);
  return std::nullopt;
}

std::optional<ErrorInfo> RefusedFor(State& s, const Submit& submit, const Subject& subject) {
  if (s.draining) return Draining();
  if (auto refusal = RefusalOf(*subject.session)) return refusal;
  if (auto refusal = OverRate(s, submit.tenant_id, submit.payload.tokens)) return refusal;
  if (auto refusal = OverQueue(s, submit.tenant_id, submit.payload.bytes)) return refusal;
  const Model* const model = subject.model;
  if (model == nullptr) return OverBound(s, submit.tenant_id, nullptr, submit.payload.bytes);
  const bool unloaded =
      model->row.state == ModelState::kUnloaded || !model->unload_request_id.empty();
  if (unloaded) {
    return FailedPrecondition("model_unloaded",
                              absl::StrFormat("model %s was unloaded", model->row.model_id));
  }
  return OverBound(s, submit.tenant_id, model, submit.payload.bytes);
}

// Fixes the choices of a save that must not change later.
std::optional<ErrorInfo> PlanTraining(State& s, const Model& model, const Submit& submit,
                                      int64_t seq_id, Plan& plan) {
  if (const auto* const save = std::get_if<SaveArgs>(&submit.args)) {
    if (!save->name.empty()) {
      if (auto error = OverStorage(s, submit.tenant_id)) return error;
      plan.dir = "c" + NewId(s);
      return std::nullopt;
    }
    if (auto error = OverSamplers(s, submit.tenant_id)) return error;
    const Session& session = s.sessions.at(model.row.session_id);
    if (session.sampler_seqs.count(save->sampling_session_seq_id) > 0) {
      return InvalidArgument("seq_id_reused", "sampling_session_seq_id",
                             absl::StrFormat("sampling_session_seq_id %d is already used",
                                             save->sampling_session_seq_id));
    }
    plan.version_id = save->inflight ? InflightVersionId(model.row.model_id)
                                     : absl::StrFormat("%s@%d", model.row.model_id, seq_id);
    plan.sampling_session_id = SamplerId(model.row.session_id, save->sampling_session_seq_id);
  }
  return std::nullopt;
}

bool IsClosed(const Model& model, int64_t seq_id) {
  return seq_id <= model.order.closed_seq() || seq_id <= model.order.ResolvedThrough();
}

std::optional<ErrorInfo> TooFarAhead(const State& s, const Model& model, int64_t seq_id) {
  const int64_t limit = model.order.max_seq() + s.options.max_seqs_ahead;
  if (seq_id <= limit) return std::nullopt;
  ErrorInfo error = ResourceExhausted(
      "too_far_ahead", absl::StrFormat("seq_id is %d, limit is %d: the last that came is %d",
                                       seq_id, limit, model.order.max_seq()));
  error.field = "seq_id";
  return error;
}

// Records the arrival of a seq, even if its request does not run.
void PlaceInOrder(State& s, Model& model, const Submit& submit, int64_t seq_id) {
  const bool serial = s.sessions.at(model.row.session_id).row.ordering == SessionOrdering::kSerial;
  const bool is_barrier = TraitsOf(submit.kind).is_barrier;
  model.order.Add(seq_id, {is_barrier, s.now});
  CloseGapsThrough(s, model, model.order.ClosedByArrival(seq_id, serial, is_barrier));
  model.row.last_request_at = s.now;
  if (s.now - model.row_written_at >= kRowInterval) PutRow(s, model);
  s.follow_ups.models.insert(model.row.model_id);
}

void AcceptTraining(State& s, Model& model, const Submit& submit, int64_t seq_id, Plan plan) {
  Session& session = s.sessions.at(model.row.session_id);
  if (!plan.sampling_session_id.empty()) {
    session.sampler_seqs.insert(std::get<SaveArgs>(plan.args).sampling_session_seq_id);
  }
  PlaceInOrder(s, model, submit, seq_id);
  Request& request =
      Accept(s, submit, seq_id, model.row.session_id, model.row.group, std::move(plan));
  const ModelState state = model.row.state;
  const bool is_gone =
      state == ModelState::kFailed || (state == ModelState::kLost && !IsBeingLoaded(s, model));
  if (submit.invalid) {
    Fail(s, request, *submit.invalid);
  } else if (is_gone) {
    Fail(s, request, ReasonOf(model));
  } else if (model.recovery != nullptr) {
    auto error = UnknownBaseModel(s, model.row.base_model);
    if (!error && model.row.is_offloaded) error = ResumeOffloaded(s, model);
    MoveToGroup(s, request, model.row.group);
    if (error) Fail(s, request, *error);
  }
}

void SubmitTraining(State& s, Model& model, const Submit& submit) {
  const int64_t seq_id = submit.seq_id > 0 ? submit.seq_id : model.order.NextFreeSeq();
  if (auto error = TooFarAhead(s, model, seq_id)) return AnswerError(s, submit.call, *error);
  Plan plan;
  plan.args = submit.args;
  plan.model_id = model.row.model_id;
  std::optional<ErrorInfo> refusal;
  const bool fails_late = submit.invalid && submit.invalid_through_future;
  if (TraitsOf(submit.kind).is_barrier && !fails_late) {
    refusal = submit.invalid ? submit.invalid : PlanTraining(s, model, submit, seq_id, plan);
  }
  if (refusal) {
    PlaceInOrder(s, model, submit, seq_id);
    model.order.Resolve(seq_id);
    return RefuseAndConsume(s, submit, seq_id, *refusal);
  }
  AcceptTraining(s, model, submit, seq_id, std::move(plan));
}

void SubmitUnload(State& s, Model& model, const Submit& submit) {
  Plan plan;
  plan.args = submit.args;
  plan.model_id = model.row.model_id;
  CloseGaps(s, model);
  Request& request = Accept(s, submit, submit.seq_id, model.row.session_id, model.row.group, plan);
  model.unload_request_id = request.row.request_id;
  s.follow_ups.models.insert(model.row.model_id);
  const bool waits = (model.row.state == ModelState::kReady && !model.row.is_offloaded) ||
                     model.row.state == ModelState::kCreating || IsBeingLoaded(s, model);
  if (!waits) EndUnload(s, model, request);
}

bool HaveSameNames(std::vector<std::string> some, std::vector<std::string> others) {
  std::sort(some.begin(), some.end());
  std::sort(others.begin(), others.end());
  return some == others;
}

// Returns why `checkpoint` differs from what the caller's metadata says.
std::optional<ErrorInfo> CheckMetadata(const CheckpointRow& checkpoint, const LoadArgs& args) {
  constexpr char kCode[] = "incompatible_checkpoint";
  constexpr size_t kMaxShownBytes = 128;
  const LoraConfig& lora = checkpoint.lora;
  if (args.lora_alpha && *args.lora_alpha != lora.alpha) {
    return InvalidArgument(kCode, "user_metadata.lathe_lora_alpha",
                           absl::StrFormat("user_metadata.lathe_lora_alpha is %g, checkpoint %s "
                                           "has %g and a load keeps it",
                                           *args.lora_alpha, args.path, lora.alpha));
  }
  if (!args.target_modules.empty() && !HaveSameNames(args.target_modules, lora.target_modules)) {
    const std::string said = absl::StrJoin(args.target_modules, ",").substr(0, kMaxShownBytes);
    return InvalidArgument(
        kCode, "user_metadata.lathe_target_modules",
        absl::StrFormat("user_metadata.lathe_target_modules is '%s', checkpoint %s has %s and a "
                        "load keeps them",
                        absl::CHexEscape(said), args.path,
                        absl::StrJoin(lora.target_modules, ",")));
  }
  return std::nullopt;
}

// Fills `row` and the plan from the checkpoint that the model is loaded from.
std::optional<ErrorInfo> PlanLoad(State& s, const Submit& submit, ModelRow& row, Plan& plan) {
  const auto& args = std::get<LoadArgs>(submit.args);
  const CheckpointRow* const checkpoint =
      FindUsable(s, submit.tenant_id, args.path, args.reader_tenant_id);
  if (checkpoint == nullptr) return NotFound("checkpoint", args.path);
  if (auto error = CheckLoadable(*checkpoint, args, args.base_model)) return error;
  if (auto error = CheckMetadata(*checkpoint, args)) return error;
  row.base_model = checkpoint->base_model;
  row.lora = checkpoint->lora;
  row.user_metadata = args.user_metadata;
  plan.dir = checkpoint->dir;
  return std::nullopt;
}

void PlanCreate(State& s, const Submit& submit, ModelRow& row, Plan& plan) {
  const auto& args = std::get<CreateModelArgs>(submit.args);
  row.base_model = args.base_model;
  row.lora = args.lora;
  if (!args.has_seed) row.lora.seed = s.random();
  plan.seed = row.lora.seed;
  row.user_metadata = args.user_metadata;
}

void SubmitCreation(State& s, const Submit& submit) {
  Session& session = *FindSession(s, submit.tenant_id, submit.owner_id);
  ModelRow row;
  row.model_id = absl::StrFormat("%s:train:%d", submit.owner_id, submit.seq_id);
  row.session_id = submit.owner_id;
  row.tenant_id = submit.tenant_id;
  row.model_seq_id = submit.seq_id;
  row.created_at = s.now;
  row.last_request_at = s.now;
  if (s.models.count(row.model_id) > 0) {
    return AnswerError(
        s, submit.call,
        InvalidArgument("seq_id_reused", "model_seq_id",
                        absl::StrFormat("model_seq_id %d is already used", submit.seq_id)));
  }
  if (auto error = OverAdapters(s, submit.tenant_id)) return AnswerError(s, submit.call, *error);
  Plan plan;
  plan.args = submit.args;
  plan.model_id = row.model_id;
  if (submit.kind == OperationKind::kLoadWeights) {
    if (auto error = PlanLoad(s, submit, row, plan)) return AnswerError(s, submit.call, *error);
  } else {
    PlanCreate(s, submit, row, plan);
  }
  if (auto error = UnknownBaseModel(s, row.base_model)) return AnswerError(s, submit.call, *error);
  if (const Group* const group = GroupForModel(s, row.base_model)) {
    row.group = group->row.group;
  }
  if (!plan.dir.empty()) PinDir(s, plan.dir);

  const std::string model_id = row.model_id;
  session.model_ids.insert(model_id);
  Model created;
  created.row = std::move(row);
  Model& model = s.models.Add(model_id, std::move(created));
  if (submit.kind == OperationKind::kCreateModel) model.created_as = model.row.lora;
  PutRow(s, model);
  SendToGroup(s, Accept(s, submit, submit.seq_id, submit.owner_id, model.row.group, plan));
}

void SubmitNew(State& s, const Submit& submit, const Subject& subject) {
  switch (submit.op_class) {
    case OpClass::kTrain:
      return SubmitTraining(s, *subject.model, submit);
    case OpClass::kUnload:
      return SubmitUnload(s, *subject.model, submit);
    case OpClass::kModel:
      if (submit.invalid) return AnswerError(s, submit.call, *submit.invalid);
      return SubmitCreation(s, submit);
    case OpClass::kSample:
      if (submit.invalid) return AnswerError(s, submit.call, *submit.invalid);
      return SubmitSample(s, submit);
  }
}

void Decide(State& s, const Submit& submit) {
  Subject subject;
  if (auto error = FindSubject(s, submit, subject)) return AnswerError(s, submit.call, *error);
  const bool has_key = HasKey(submit);
  const Request* known = nullptr;
  if (has_key) {
    known = FindByKey(s, submit.owner_id, submit.op_class, submit.seq_id);
  } else if (!submit.idempotency_key.empty()) {
    known = FindByIdempotencyKey(s, submit.owner_id, submit.idempotency_key);
  }
  if (known != nullptr) return AnswerDuplicate(s, submit, *known);
  // The request is not new, so limits on new requests do not apply.
  if (submit.op_class == OpClass::kTrain && has_key && IsClosed(*subject.model, submit.seq_id)) {
    return AnswerError(s, submit.call, ClosedSeq(submit.owner_id, submit.seq_id));
  }
  if (auto refusal = RefusedFor(s, submit, subject)) return AnswerError(s, submit.call, *refusal);
  if (submit.payload.is_withheld) {
    s.follow_ups.tenants.insert(submit.tenant_id);  // the room that rpc/ knows is out of date
    return AnswerError(s, submit.call, BodyWithheld(submit));
  }
  RecordSignOfLife(s, *subject.session);
  SubmitNew(s, submit, subject);
}

}  // namespace

void OnSubmit(State& s, const Submit& submit) {
  s.body_kept = false;
  Decide(s, submit);
  if (!s.body_kept && !submit.payload.body_id.empty()) {
    s.fx.After(ForgetBody{submit.payload.body_id});
  }
}

}  // namespace lathe::engine
