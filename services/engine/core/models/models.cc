#include "services/engine/core/models/models.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/state/errors.h"

namespace lathe::engine {

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

void SetGroup(State& s, Model& model, const std::string& group) {
  s.models.Change(model.row.model_id, [&](Model& changed) { changed.row.group = group; });
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

}  // namespace lathe::engine
