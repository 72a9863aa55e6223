// Cores with a worker and one model or sampler, as most tests need them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {

// A worker that holds one model. Calls without a model are about that one.
struct ModelHarness : CoreHarness {
  explicit ModelHarness(CoreOptions options = {}) : CoreHarness(options) {
    AttachWorker();
    session = NewSession();
    model = NewModel(session);
  }
  using CoreHarness::Forward;
  using CoreHarness::Gradient;
  using CoreHarness::Save;
  using CoreHarness::Step;
  CallId Forward(int64_t seq) { return Forward(model, seq); }
  CallId Gradient(int64_t seq, const std::string& content = "") {
    return Gradient(model, seq, content);
  }
  CallId Step(int64_t seq) { return Step(model, seq); }
  CallId Save(int64_t seq, SaveArgs args, OperationKind kind = OperationKind::kSaveWeights) {
    return Save(model, seq, std::move(args), kind);
  }

  std::string session;
  std::string model;
};

// A worker and a sampler of the base model.
struct SamplerHarness : CoreHarness {
  explicit SamplerHarness(CoreOptions options = {}) : CoreHarness(options) {
    AttachWorker();
    session = NewSession();
    Sampler(session, 0, "");
    sampler = session + ":sample:0";
  }

  std::string session;
  std::string sampler;
};

}  // namespace lathe::engine
