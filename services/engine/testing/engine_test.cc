// The engine from its public service to a worker's stream and back.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "services/engine/testing/test_engine.h"

namespace lathe::engine {
namespace {

std::string Tokens(const std::vector<int32_t>& tokens) {
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

  // A model whose creation has finished.
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

struct Fixture {
  TestEngine engine;
  FakeWorker worker;
  Client client;

  Fixture()
      : worker(engine.WorkerOptions()),
        client((engine.WaitForBaseModel("tiny"), engine), engine.MakeKey("default")) {}
};

TEST_CASE("Engine: a model is made, trained, stepped and sampled", "[engine]") {
  Fixture f;
  std::string create_id;
  REQUIRE(f.client.CreateModel(&create_id).ok());
  v1::GetModelRequest get_model;
  get_model.set_model_id(f.client.model_id());
  v1::GetModelResponse model;
  REQUIRE(f.engine.engine().GetModel(CallContext(f.client.key()), get_model, &model).ok());
  CHECK(model.base_model() == "tiny");
  CHECK(model.tokenizer_id() == "/tokenizer");
  CHECK(model.lora_rank() == 8);

  std::string train_id;
  std::string step_id;
  REQUIRE(f.client
              .Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &train_id)
              .ok());
  REQUIRE(f.client.OptimStep(2, &step_id).ok());
  CHECK(f.client.Result(create_id).create_model().model_id() == f.client.model_id());
  const v1::OperationResult trained = f.client.Result(train_id);
  INFO(trained.ShortDebugString());
  REQUIRE(trained.forward_backward().outputs_size() == 1);
  CHECK(trained.forward_backward().outputs(0).logprobs().size() == 12);
  CHECK(f.client.Result(step_id).has_optim_step());

  v1::SaveWeightsForSamplerRequest save;
  save.set_model_id(f.client.model_id());
  save.set_seq_id(3);
  save.set_sampling_session_seq_id(0);
  std::string save_id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::SaveWeightsForSampler, save, &save_id).ok());
  const v1::OperationResult saved = f.client.Result(save_id);
  const std::string sampler = saved.save_weights_for_sampler().sampling_session_id();
  INFO(saved.ShortDebugString());
  REQUIRE_FALSE(sampler.empty());

  v1::SampleRequest sample;
  sample.set_sampling_session_id(sampler);
  sample.add_prompt()->set_tokens(Tokens({1, 2}));
  sample.set_num_samples(2);
  sample.mutable_params()->set_temperature(1);
  sample.mutable_params()->set_top_k(-1);
  sample.mutable_params()->set_top_p(1);
  v1::SampleSubmitResponse submitted;
  REQUIRE(f.engine.engine().Sample(CallContext(f.client.key()), sample, &submitted).ok());
  CHECK(submitted.sample_sequence_ids_size() == 2);
  CHECK(f.client.Result(submitted.request_id()).sample().sequences_size() == 2);

  for (const v1::EngineMessage& message : f.worker.received()) {
    if (!message.has_sample()) continue;
    // The seed and the length the caller left open are fixed before the worker sees them.
    CHECK(message.sample().request().params().has_seed());
    CHECK(message.sample().request().params().max_tokens() == 62);
  }
}

TEST_CASE("Engine: an invalid forward_backward fails through its future", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest request = f.client.TrainRequest(1);
  request.mutable_data(0)->mutable_model_input(0)->set_tokens(Tokens({1, 768, 3}));
  std::string id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::ForwardBackward, request, &id).ok());
  const v1::OperationResult result = f.client.Result(id);
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK(result.error().code() == "bad_token");
  CHECK(result.error().message() ==
        "data[0].model_input: token at position 1 is 768, vocabulary size is 768");
}

TEST_CASE("Engine: other invalid requests are refused at submission", "[engine]") {
  Fixture f;
  std::string id;
  const absl::Status bad_rank = f.client.CreateModel(&id, 0, 513);
  CHECK(bad_rank.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(bad_rank) == "lora_config.rank");

  v1::CreateModelRequest unknown;
  unknown.set_session_id(f.client.session_id());
  unknown.set_base_model("other");
  const absl::Status not_served = f.client.Submit(&v1::Engine::Stub::CreateModel, unknown, &id);
  CHECK(not_served.code() == absl::StatusCode::kNotFound);
  CHECK(ErrorCode(not_served) == "unknown_base_model");
  CHECK_THAT(std::string(not_served.message()), Catch::Contains("tiny"));
}

TEST_CASE("Engine: another optimizer's parameters fail through the future", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::OptimStepRequest step;
  step.set_model_id(f.client.model_id());
  step.set_seq_id(1);
  step.set_other_optimizer_type("dimuon");
  std::string id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::OptimStep, step, &id).ok());
  const v1::OperationResult result = f.client.Result(id);
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK_THAT(result.error().message(), Catch::Contains("dimuon"));
}

TEST_CASE("Engine: a repeated request has one id, another content is refused", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  std::string first;
  std::string second;
  REQUIRE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &first).ok());
  REQUIRE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &second).ok());
  CHECK(first == second);
  const absl::Status other =
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1, 4), &second);
  CHECK(other.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorCode(other) == "seq_id_reused");
}

TEST_CASE("Engine: a tenant sees nothing of another", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  std::string request_id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &request_id)
              .ok());
  f.client.Result(request_id);
  Client stranger(f.engine, f.engine.MakeKey("other"));

  v1::GetModelRequest get_model;
  get_model.set_model_id(f.client.model_id());
  v1::GetModelResponse model;
  CHECK(f.engine.engine().GetModel(CallContext(stranger.key()), get_model, &model).error_code() ==
        grpc::StatusCode::NOT_FOUND);
  v1::GetResultResponse result;
  CHECK(stranger.GetResult(request_id, &result).error_code() == grpc::StatusCode::NOT_FOUND);
  std::string id;
  CHECK(stranger.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(2), &id).code() ==
        absl::StatusCode::kNotFound);
  v1::ListRunsResponse runs;
  REQUIRE(f.engine.engine().ListRuns(CallContext(stranger.key()), {}, &runs).ok());
  CHECK(runs.total_count() == 0);
  REQUIRE(f.engine.engine().ListRuns(CallContext(f.client.key()), {}, &runs).ok());
  CHECK(runs.total_count() == 1);
}

TEST_CASE("Engine: calls without a valid key or scope are refused", "[engine]") {
  Fixture f;
  v1::ListRunsResponse runs;
  CHECK(f.engine.engine().ListRuns(CallContext("tml-nonsense"), {}, &runs).error_code() ==
        grpc::StatusCode::UNAUTHENTICATED);
  const std::string reader = f.engine.MakeKey("default", {"read"});
  CHECK(f.engine.engine().ListRuns(CallContext(reader), {}, &runs).ok());
  v1::SubmitResponse response;
  const absl::Status refused =
      FromGrpcStatus(f.engine.engine().CreateModel(CallContext(reader), {}, &response));
  CHECK(refused.code() == absl::StatusCode::kPermissionDenied);
  CHECK(ErrorCode(refused) == "missing_scope");
}

TEST_CASE("Engine: a pending result is answered as pending when its time is up", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  f.worker.Detach();
  std::string id;
  REQUIRE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &id).ok());
  v1::GetResultResponse response;
  REQUIRE(f.client.GetResult(id, &response, 0).ok());
  CHECK_FALSE(response.has_result());
  REQUIRE(f.client.GetResult(id, &response, 1).ok());
  CHECK_FALSE(response.has_result());
}

TEST_CASE("Engine: a watch stream tells what is done and what cannot be watched", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  std::string id;
  REQUIRE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &id).ok());
  const std::string stranger = f.engine.MakeKey("other");

  CallContext context(f.client.key());
  auto stream = f.engine.engine().Watch(context);
  v1::WatchRequest request;
  v1::WatchResponse response;
  request.mutable_subscribe()->set_request_id(id);
  request.mutable_subscribe()->set_api_key(f.client.key());
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK(response.request_id() == id);
  CHECK(response.done());

  request.mutable_subscribe()->set_api_key(stranger);
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK(response.error().code() == "not_found");

  request.mutable_subscribe()->set_api_key("nonsense");
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK(response.error().code() == "unauthenticated");
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

TEST_CASE("Engine: results and accepted work survive a restart", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  std::string done_id;
  REQUIRE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1), &done_id).ok());
  const std::string before = f.client.Result(done_id).SerializeAsString();
  f.worker.Detach();
  std::string open_id;
  REQUIRE(f.client.OptimStep(2, &open_id).ok());

  f.engine.Restart();
  CHECK(f.client.Result(done_id).SerializeAsString() == before);
  f.worker.Attach(f.engine.WorkerOptions().address);
  CHECK(f.client.Result(open_id).has_optim_step());
}

TEST_CASE("Engine: a body larger than a piece reaches the worker as it was sent", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest request = f.client.TrainRequest(1, 64);
  const v1::Datum datum = request.data(0);
  for (int i = 0; i < 3000; ++i) *request.add_data() = datum;
  REQUIRE(request.ByteSizeLong() > (2u << 20));
  request.set_seq_id(0);
  std::string id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::ForwardBackward, request, &id).ok());
  CHECK(f.client.Result(id).forward_backward().outputs_size() == 3001);
  bool is_seen = false;
  for (const v1::EngineMessage& message : f.worker.received()) {
    if (!message.has_train_batch()) continue;
    is_seen = true;
    v1::ForwardBackwardRequest got = message.train_batch().items(0).request();
    CHECK(got.seq_id() == 1);
    got.set_seq_id(0);
    CHECK(got.SerializeAsString() == request.SerializeAsString());
  }
  CHECK(is_seen);
}

TEST_CASE("Engine: a worker with another secret or version is refused", "[engine]") {
  TestEngine engine;
  FakeWorker::Options options = engine.WorkerOptions();
  SECTION("secret") {
    options.secret = "guessed";
    FakeWorker worker(options);
    CHECK(worker.WaitForEnd().error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  SECTION("version") {
    options.version = "9.9.9";
    FakeWorker worker(options);
    const grpc::Status status = worker.WaitForEnd();
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(status.error_message(), Catch::Contains("9.9.9"));
  }
}

TEST_CASE("Engine: a saved checkpoint is listed, described, signed and opened", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::SaveWeightsRequest save;
  save.set_model_id(f.client.model_id());
  save.set_seq_id(1);
  save.set_name("final");
  std::string id;
  REQUIRE(f.client.Submit(&v1::Engine::Stub::SaveWeights, save, &id).ok());
  const std::string path = f.client.Result(id).save_weights().path();
  CHECK(path == "tinker://" + f.client.model_id() + "/weights/final");

  v1::ListCheckpointsResponse list;
  REQUIRE(f.engine.engine().ListCheckpoints(CallContext(f.client.key()), {}, &list).ok());
  REQUIRE(list.checkpoints_size() == 1);
  CHECK(list.checkpoints(0).tinker_path() == path);
  CHECK(list.checkpoints(0).size_bytes() == 123);
  v1::GetWeightsInfoRequest info;
  info.set_tinker_path(path);
  v1::GetWeightsInfoResponse described;
  REQUIRE(f.engine.engine().GetWeightsInfo(CallContext(f.client.key()), info, &described).ok());
  CHECK(described.lora_rank() == 8);
  const std::string stranger = f.engine.MakeKey("other");
  CHECK(f.engine.engine().GetWeightsInfo(CallContext(stranger), info, &described).error_code() ==
        grpc::StatusCode::NOT_FOUND);

  v1::DescribeArchiveRequest describe;
  describe.set_tinker_path(path);
  v1::DescribeArchiveResponse archive;
  REQUIRE(f.engine.engine().DescribeArchive(CallContext(f.client.key()), describe, &archive).ok());
  v1::OpenArchiveRequest open;
  open.set_token(archive.token());
  v1::OpenArchiveResponse opened;
  REQUIRE(f.engine.engine().OpenArchive(CallContext(""), open, &opened).ok());
  CHECK(opened.files_size() == 3);
  open.mutable_token()->at(3) ^= 1;
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
  f.engine.clock().Advance(ArchiveSigner::kLifetime);
  open.set_token(archive.token());
  CHECK(f.engine.engine().OpenArchive(CallContext(""), open, &opened).error_code() ==
        grpc::StatusCode::OUT_OF_RANGE);
}

TEST_CASE("Engine: admin makes and revokes keys, shows status and drains", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::CreateKeyRequest create;
  create.set_tenant("fresh");
  v1::CreateKeyResponse key;
  REQUIRE(f.engine.admin().CreateKey(CallContext(""), create, &key).ok());
  v1::AuthenticateResponse authenticated;
  CHECK(f.engine.engine().Authenticate(CallContext(key.api_key()), {}, &authenticated).ok());
  CHECK(authenticated.scopes_size() == 4);
  v1::RevokeKeyRequest revoke;
  revoke.set_key_id(key.key_id());
  v1::RevokeKeyResponse revoked;
  REQUIRE(f.engine.admin().RevokeKey(CallContext(""), revoke, &revoked).ok());
  CHECK_FALSE(
      f.engine.engine().Authenticate(CallContext(key.api_key()), {}, &authenticated).ok());

  std::string step;
  REQUIRE(f.client.OptimStep(1, &step).ok());
  f.client.Result(step);
  v1::GetStatusResponse status;
  REQUIRE(f.engine.admin().GetStatus(CallContext(""), {}, &status).ok());
  REQUIRE(status.groups_size() == 1);
  CHECK(status.groups(0).state() == "ready");
  CHECK(status.groups(0).base_model() == "tiny");
  REQUIRE(status.models_size() == 1);
  CHECK(status.models(0).unsaved());
  CHECK(status.models(0).tenant() == "default");

  v1::DrainRequest drain;
  drain.set_timeout_ms(30'000);
  v1::DrainResponse drained;
  REQUIRE(f.engine.admin().Drain(CallContext(""), drain, &drained).ok());
  REQUIRE(drained.unsaved_model_ids_size() == 1);
  CHECK(drained.pending_requests() == 0);
  std::string id;
  CHECK_FALSE(
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(2), &id).ok());
}

}  // namespace
}  // namespace lathe::engine
