// Models: creation, rows, loss and release.
#pragma once

#include <string>
#include <vector>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Submits create_model, or a load_weights that creates its model.
void SubmitCreation(State& s, const Submit& submit);

Model* FindModel(State& s, const std::string& tenant_id, const std::string& model_id);

// Unfinished requests of the model, in order of acceptance, without samples.
std::vector<Request*> LiveRequestsOf(State& s, const Model& model);

// Writes the model's row from the current ledger.
void PutRow(State& s, Model& model);

// Records that the creation failed. Fails all requests that wait for the model with `reason`.
void FailModel(State& s, Model& model, const ErrorInfo& reason);
// Records that the model's state was lost with its worker and cannot be rebuilt.
void LoseModel(State& s, Model& model, const std::string& why);
// The error of requests to a lost or failed model.
ErrorInfo ReasonOf(const Model& model);

// Records that an unload completed.
void UnloadModel(State& s, Model& model);
// Ends an unload that has nothing to do on a worker.
void EndUnload(State& s, Model& model, Request& unload);
// Returns true if a load into the model has not ended. A load restores even a lost model.
bool IsBeingLoaded(State& s, const Model& model);
// Forgets a model whose session has ended, and has its worker drop it.
void ReleaseModel(State& s, const std::string& model_id);

}  // namespace lathe::engine
