// A client with a sampling session of the base model, and its worker.
#pragma once

#include <catch2/catch.hpp>

#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {

struct SamplingFixture {
  TestEngine engine;
  FakeWorker worker;
  Client client;
  v1::SampleRequest sample;  // complete but for its seq_id

  explicit SamplingFixture(bool answers, int64_t max_running_samples = 0)
      : worker(WorkerOptions(engine, answers, max_running_samples)),
        client((engine.WaitForBaseModel("tiny"), engine), engine.MakeKey("default")) {
    v1::CreateSamplingSessionRequest create;
    create.set_session_id(client.session_id());
    create.set_base_model("tiny");
    v1::CreateSamplingSessionResponse created;
    REQUIRE(
        engine.engine().CreateSamplingSession(CallContext(client.key()), create, &created).ok());
    sample.set_sampling_session_id(created.sampling_session_id());
    sample.add_prompt()->set_tokens(Tokens({1, 2}));
    sample.set_num_samples(1);
    sample.mutable_params()->set_max_tokens(3);
    sample.mutable_params()->set_temperature(1);
    sample.mutable_params()->set_top_k(-1);
    sample.mutable_params()->set_top_p(1);
  }

  static FakeWorker::Options WorkerOptions(const TestEngine& engine, bool answers,
                                           int64_t max_running_samples) {
    FakeWorker::Options options = engine.WorkerOptions();
    options.answers = answers;
    options.max_running_samples = max_running_samples;
    return options;
  }
};

}  // namespace lathe::engine
