// Ends of models: failure, loss, unload and the end of their session.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Records that the creation failed. Fails all requests that wait for the model with `reason`.
void FailModel(State& s, Model& model, const ErrorInfo& reason);
// Records that the model's state was lost with its worker and cannot be rebuilt.
void LoseModel(State& s, Model& model, const std::string& why);
// Call when a group has changed its base model or was removed. Fails the requests that wait for a
// base model which no group serves any more.
void FailUnserved(State& s);

// Records that an unload completed.
void UnloadModel(State& s, Model& model);
// Ends an unload that has nothing to do on a worker.
void EndUnload(State& s, Model& model, Request& unload);
// Forgets a model whose session has ended, and has its worker drop it.
void ReleaseModel(State& s, const std::string& model_id);

}  // namespace lathe::engine
