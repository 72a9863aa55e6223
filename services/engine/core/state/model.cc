#include "services/engine/core/state/model.h"

#include <algorithm>

namespace lathe::engine {

Model Models::Take(const std::string& id) {
  Model& model = map_.at(id);
  SetFacts(model, ModelFacts());
  if (model.is_touched) touched_.erase(std::find(touched_.begin(), touched_.end(), &model));
  return map_.Take(id);
}

void Models::EndStep() {
  for (Model* const model : touched_) model->is_touched = false;
  touched_.clear();
}

void Models::SetFacts(Model& model, ModelFacts facts) {
  if (facts == model.facts) return;
  const ModelRow& row = model.row;
  const auto count = [&](int64_t sign) {
    if (!model.facts.is_known) return;
    index_.Count(row.model_id, row.tenant_id, row.base_model, model.facts, sign);
  };
  count(-1);
  model.facts = std::move(facts);
  count(+1);
}

}  // namespace lathe::engine
