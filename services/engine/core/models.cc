#include "services/engine/core/models.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/engine/core/base_models.h"
#include "services/engine/core/checkpoints.h"
#include "services/engine/core/errors.h"
#include "services/engine/core/file_pins.h"
#include "services/engine/core/model_history.h"
#include "services/engine/core/operations.h"
#include "services/engine/core/placement.h"
#include "services/engine/core/quotas.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/samplers.h"
#include "services/engine/core/versions.h"

namespace lathe::engine {
namespace {

// Returns why `checkpoint` differs from what the caller's metadata says.
std::optional<ErrorInfo> CheckMetadata(const CheckpointRow& checkpoint, const LoadArgs& args) {
  constexpr char kCode[] = "incompatible_checkpoint";
  const LoraConfig& lora = checkpoint.lora;
  if (args.lora_alpha && *args.lora_alpha != lora.alpha) {
    return InvalidArgument(kCode, "user_metadata.lathe_lora_alpha",
                           absl::StrFormat("user_metadata.lathe_lora_alpha is %g, checkpoint %s "
                                           "has %g and a load keeps it",
                                           *args.lora_alpha, args.path, lora.alpha));
  }
  if (!args.target_modules.empty() && args.target_modules != lora.target_modules) {
    return InvalidArgument(
        kCode, "user_metadata.lathe_target_modules",
        absl::StrFormat("user_metadata.lathe_target_modules is %s, checkpoint %s has %s and a "
                        "load keeps them",
                        absl::StrJoin(args.target_modules, ","), args.path,
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

}  // namespace

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
  Model& model = s.models[model_id];
  model.row = std::move(row);
  if (submit.kind == OperationKind::kCreateModel) model.created_as = model.row.lora;
  PutRow(s, model);
  SendToGroup(s, Accept(s, submit, submit.seq_id, submit.owner_id, model.row.group, plan));
}

Model* FindModel(State& s, const std::string& tenant_id, const std::string& model_id) {
  Model* const model = Find(s.models, model_id);
  return model != nullptr && model->row.tenant_id == tenant_id ? model : nullptr;
}

std::vector<Request*> LiveRequestsOf(State& s, const Model& model) {
  const ModelRow& row = model.row;
  std::vector<Request*> live;
  const auto add = [&](Request* request) {
    if (request != nullptr && request->live()) live.push_back(request);
  };
  add(FindByKey(s, row.session_id, OpClass::kModel, row.model_seq_id));
  for (const int64_t seq : model.order.Unresolved()) {
    add(FindByKey(s, row.model_id, OpClass::kTrain, seq));
  }
  add(Find(s.requests, model.unload_request_id));
  std::sort(live.begin(), live.end(),
            [](const Request* a, const Request* b) { return a->order < b->order; });
  return live;
}

void PutRow(State& s, Model& model) {
  ModelRow& row = model.row;
  row.applied_seq = model.gradient.applied_seq();
  row.gradient_from_seq = model.gradient.from_seq();
  row.closed_seq = model.order.closed_seq();
  row.dropped_window = EncodeSeqs(model.gradient.dropped());
  model.row_written_at = s.now;
  s.fx.Put(PutModel{row});
}

ErrorInfo ReasonOf(const Model& model) {
  if (model.row.state == ModelState::kLost) {
    return DataLoss("model_lost", model.row.state_reason);
  }
  return FailedPrecondition("model_failed",
                            absl::StrFormat("model %s could not be created: %s", model.row.model_id,
                                            model.row.state_reason));
}

void FailModel(State& s, Model& model, const ErrorInfo& reason) {
  model.row.state = ModelState::kFailed;
  model.row.state_reason = reason.message;
  PutRow(s, model);
  ReleaseHistory(s, model);
  ErrorInfo error = ReasonOf(model);
  error.status = reason.status;
  for (Request* const request : LiveRequestsOf(s, model)) Fail(s, *request, error);
}

void LoseModel(State& s, Model& model, const std::string& why) {
  model.row.state = ModelState::kLost;
  model.row.is_offloaded = false;
  model.row.state_reason =
      absl::StrFormat("model %s was lost when its worker stopped (%s); load a checkpoint to go on",
                      model.row.model_id, why);
  PutRow(s, model);
  ForgetRecovery(s, model);  // its snapshot files stay for inspection
  for (auto& [id, sampler] : s.samplers) {
    if (sampler.unnamed() && sampler.row.model_id == model.row.model_id) LoseVersion(s, sampler);
  }
  for (Request* const request : LiveRequestsOf(s, model)) {
    if (request->row.kind == OperationKind::kUnloadModel) {
      EndUnload(s, model, *request);
    } else {
      Fail(s, *request, ReasonOf(model));
    }
  }
}

void UnloadModel(State& s, Model& model) {
  model.row.state = ModelState::kUnloaded;
  model.row.state_reason = "unloaded";
  model.row.is_offloaded = false;
  PutRow(s, model);
  SaveVersionsOf(s, model);
  ReleaseHistory(s, model);
}

void EndUnload(State& s, Model& model, Request& unload) {
  UnloadModel(s, model);
  MakeResult result;
  result.model_id = model.row.model_id;
  Succeed(s, unload, std::move(result), /*from_worker=*/false);
}

bool IsBeingLoaded(State& s, const Model& model) {
  const std::vector<int64_t> unresolved = model.order.Unresolved();
  return std::any_of(unresolved.begin(), unresolved.end(), [&](int64_t seq) {
    const Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
    return request != nullptr && request->row.kind == OperationKind::kLoadWeights;
  });
}

void ReleaseModel(State& s, const std::string& model_id) {
  Model& model = s.models.at(model_id);
  if (model.row.state == ModelState::kReady || model.row.state == ModelState::kCreating) {
    model.row.state = ModelState::kUnloaded;
    model.row.state_reason = "its session is over";
    model.row.is_offloaded = false;
    PutRow(s, model);
    if (const Group* const group = Find(s.groups, model.row.group)) {
      s.fx.Send(model.row.group, group->row.epoch, SendDropAdapter{"", model_id});
    }
  }
  ReleaseHistory(s, model);
  if (!model.notified.model_id.empty()) s.fx.After(NotifyModelState{.model_id = model_id});
  s.models.erase(model_id);
}

}  // namespace lathe::engine
