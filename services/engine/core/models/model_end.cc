#include "services/engine/core/models/model_end.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/engine/core/models/model_history.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/base_models.h"

namespace lathe::engine {

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
  for (const std::string& id : UnnamedSamplersOf(s, model.row.model_id)) {
    LoseVersion(s, s.samplers.at(id));
  }
  for (Request* const request : LiveRequestsOf(s, model)) {
    if (request->row.kind == OperationKind::kUnloadModel) {
      EndUnload(s, model, *request);
    } else {
      Fail(s, *request, ReasonOf(model));
    }
  }
}

void FailUnserved(State& s) {
  const bool all_served =
      std::all_of(s.base_models.begin(), s.base_models.end(),
                  [&](const auto& entry) { return !UnknownBaseModel(s, entry.first); });
  if (all_served) return;  // each accepted request is of one of them
  for (auto& [id, model] : s.models) {
    if (model.row.state != ModelState::kCreating) continue;
    if (auto error = UnknownBaseModel(s, model.row.base_model)) FailModel(s, model, *error);
  }
  std::vector<std::string> ids;
  for (const auto& [order, id] : s.live) ids.push_back(id);
  for (const std::string& id : ids) {
    Request& request = s.requests.at(id);
    if (!request.live()) continue;  // failed with its model
    if (auto error = UnknownBaseModel(s, BaseModelOf(s, request))) Fail(s, request, *error);
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
  s.models.Take(model_id);
}

}  // namespace lathe::engine
