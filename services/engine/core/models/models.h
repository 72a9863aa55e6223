// Rows of models, and their live requests.
#pragma once

#include <string>
#include <vector>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

Model* FindModel(State& s, const std::string& tenant_id, const std::string& model_id);

// Unfinished requests of the model, in order of acceptance, without samples.
std::vector<Request*> LiveRequestsOf(State& s, const Model& model);

// Makes the model live on `group`.
void SetGroup(State& s, Model& model, const std::string& group);
// Writes the model's row from the current ledger.
void PutRow(State& s, Model& model);

// The error of requests to a lost or failed model.
ErrorInfo ReasonOf(const Model& model);

}  // namespace lathe::engine
