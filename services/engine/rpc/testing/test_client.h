// A tenant's client of a TestEngine.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libs/common/rpc/status.h"
#include "services/engine/rpc/testing/test_engine.h"

namespace lathe::engine {

// Packs int32 token ids as in messages.
inline std::string Tokens(const std::vector<int32_t>& tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
}

// A caller of one tenant with a session.
class Client {
 public:
  Client(TestEngine& engine, std::string key) : engine_(engine), key_(std::move(key)) {
    CallContext context(key_);
    v1::CreateSessionRequest request;
    request.set_ordering(v1::SESSION_ORDERING_SERIAL);
    v1::CreateSessionResponse response;
    const grpc::Status status = engine_.engine().CreateSession(context, request, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    session_id_ = response.session_id();
  }

  const std::string& session_id() const { return session_id_; }
  const std::string& key() const { return key_; }

  absl::Status CreateModel(std::string* request_id, int64_t model_seq_id = 0, int64_t rank = 8) {
    v1::CreateModelRequest request;
    request.set_session_id(session_id_);
    request.set_model_seq_id(model_seq_id);
    request.set_base_model("tiny");
    request.mutable_lora_config()->set_rank(rank);
    request.mutable_lora_config()->set_train_attn(true);
    return Submit(&v1::Engine::Stub::CreateModel, request, request_id);
  }

  v1::ForwardBackwardRequest TrainRequest(int64_t seq, int num_tokens = 3) const {
    v1::ForwardBackwardRequest request;
    request.set_model_id(model_id());
    request.set_seq_id(seq);
    request.mutable_loss()->set_name("cross_entropy");
    v1::Datum* datum = request.add_data();
    datum->add_model_input()->set_tokens(Tokens(std::vector<int32_t>(num_tokens, 5)));
    v1::NamedTensor* input = datum->add_loss_fn_inputs();
    input->set_name("target_tokens");
    input->mutable_tensor()->set_dtype(v1::DTYPE_INT64);
    const std::vector<int64_t> targets(num_tokens, 6);
    input->mutable_tensor()->set_dense(
        std::string(reinterpret_cast<const char*>(targets.data()), targets.size() * 8));
    return request;
  }

  absl::Status OptimStep(int64_t seq, std::string* request_id) {
    v1::OptimStepRequest request;
    request.set_model_id(model_id());
    request.set_seq_id(seq);
    request.mutable_adam_params()->set_learning_rate(1e-4);
    request.mutable_adam_params()->set_beta1(0.9);
    request.mutable_adam_params()->set_beta2(0.95);
    request.mutable_adam_params()->set_eps(1e-8);
    return Submit(&v1::Engine::Stub::OptimStep, request, request_id);
  }

  template <typename Method, typename Request>
  absl::Status Submit(Method method, const Request& request, std::string* request_id) {
    CallContext context(key_);
    v1::SubmitResponse response;
    const grpc::Status status = (engine_.engine().*method)(context, request, &response);
    *request_id = response.request_id();
    return FromGrpcStatus(status);
  }

  // Submits a request that must be accepted and returns its id.
  template <typename Method, typename Request>
  std::string Accept(Method method, const Request& request) {
    std::string request_id;
    const absl::Status status = Submit(method, request, &request_id);
    INFO(status);
    REQUIRE(status.ok());
    return request_id;
  }
  std::string Train(int64_t seq, int num_tokens = 3) {
    return Accept(&v1::Engine::Stub::ForwardBackward, TrainRequest(seq, num_tokens));
  }
  std::string Save(int64_t seq, const std::string& name) {
    v1::SaveWeightsRequest request;
    request.set_model_id(model_id());
    request.set_seq_id(seq);
    request.set_name(name);
    return Accept(&v1::Engine::Stub::SaveWeights, request);
  }

  grpc::Status GetResult(const std::string& request_id, v1::GetResultResponse* response,
                         int64_t wait_ms = 40'000) {
    CallContext context(key_);
    v1::GetResultRequest request;
    request.set_request_id(request_id);
    request.set_wait_ms(wait_ms);
    return engine_.engine().GetResult(context, request, response);
  }

  v1::OperationResult Result(const std::string& request_id) {
    v1::GetResultResponse response;
    const grpc::Status status = GetResult(request_id, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    REQUIRE(response.has_result());
    return response.result();
  }

  // Creates a model and waits until that has finished.
  void MakeModel() {
    std::string id;
    const absl::Status status = CreateModel(&id);
    INFO(status);
    REQUIRE(status.ok());
    const v1::OperationResult result = Result(id);
    INFO(result.ShortDebugString());
    REQUIRE(result.create_model().model_id() == model_id());
  }

  std::string model_id() const { return session_id_ + ":train:0"; }

 private:
  TestEngine& engine_;
  const std::string key_;
  std::string session_id_;
};

// An engine with a worker that serves "tiny" (context 64, vocabulary 768), and one client.
struct Fixture {
  TestEngine engine;
  FakeWorker worker;
  Client client;

  Fixture()
      : worker(engine.WorkerOptions()),
        client((engine.WaitForBaseModel("tiny"), engine), engine.MakeKey("default")) {}
};

}  // namespace lathe::engine
