// A model in a core under test, for tests of saves and loads.
#pragma once

#include <string>
#include <utility>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {

struct Trained {
  CoreHarness h;
  std::string session;
  std::string model;
  std::string path;

  Trained() {
    h.AttachWorker();
    session = h.NewSession();
    model = h.NewModel(session);
    path = "tinker://" + model + "/weights/a";
  }
  CallId Save(int64_t seq, SaveArgs args = {.name = "a"}) {
    const CallId call = h.Save(model, seq, std::move(args));
    h.RunWorker();
    return call;
  }
  const CheckpointRow& Row() const { return h.store.checkpoints().at(path); }
  CallId Load(int64_t model_seq, bool optimizer = true) {
    const CallId call =
        h.SubmitArgs(session, OpClass::kModel, model_seq, OperationKind::kLoadWeights,
                     LoadArgs{.path = path, .with_optimizer = optimizer, .creates_model = true});
    h.RunWorker();
    return call;
  }
};

}  // namespace lathe::engine
