// Models: creation, rows, loss and release.
#pragma once

#include <string>
#include <vector>

#include "services/engine/core/state.h"

namespace lathe::engine {

// create_model, and load_weights in the form that creates its model.
void SubmitCreation(State& s, const Submit& submit);

Model* FindModel(State& s, const std::string& tenant_id, const std::string& model_id);

// Its requests that have not ended, in order of acceptance; samples are not among them.
std::vector<Request*> LiveRequestsOf(State& s, const Model& model);

// Writes the model's row as the ledger is now.
void PutRow(State& s, Model& model);

// Its creation failed: everything that waits for it fails with that reason.
void FailModel(State& s, Model& model, const ErrorInfo& reason);
// Its state went with its worker.
void LoseModel(State& s, Model& model, const std::string& why);
// What requests to a lost or failed model end with.
ErrorInfo ReasonOf(const Model& model);

// An unload completed.
void UnloadModel(State& s, Model& model);
// Its unload has nothing to do on a worker.
void EndUnload(State& s, Model& model, Request& unload);
// A load into it has not ended: that one brings back even a lost model.
bool IsBeingLoaded(State& s, const Model& model);
// Its session is over: forgets it, its worker too.
void ReleaseModel(State& s, const std::string& model_id);

}  // namespace lathe::engine
