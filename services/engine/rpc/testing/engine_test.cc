// The life of requests, from the public service to a worker's stream and back.
#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "services/engine/rpc/testing/test_client.h"

namespace lathe::engine {
namespace {

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

  const std::string train_id = f.client.Train(1);
  std::string step_id;
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
  const std::string save_id = f.client.Accept(&v1::Engine::Stub::SaveWeightsForSampler, save);
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
    // The engine sets the seed and length that the caller left open before the worker sees them.
    CHECK(message.sample().request().params().has_seed());
    CHECK(message.sample().request().params().max_tokens() == 62);
  }
}

TEST_CASE("Engine: a model's alpha and modules reach the worker and the client", "[engine]") {
  Fixture f;
  v1::CreateModelRequest create;
  create.set_session_id(f.client.session_id());
  create.set_base_model("tiny");
  create.mutable_lora_config()->set_rank(4);
  create.mutable_lora_config()->add_target_modules("qkv");
  std::string id;
  const absl::Status refused = f.client.Submit(&v1::Engine::Stub::CreateModel, create, &id);
  CHECK(ErrorField(refused) == "lora_config.target_modules");
  create.mutable_lora_config()->set_target_modules(0, "v_proj");
  create.mutable_lora_config()->add_target_modules("q_proj");
  create.mutable_lora_config()->set_alpha(16);
  REQUIRE(f.client.Submit(&v1::Engine::Stub::CreateModel, create, &id).ok());
  CHECK(f.client.Result(id).has_create_model());

  const std::vector<std::string> expected = {"q_proj", "v_proj"};
  const auto words = [](const google::protobuf::RepeatedPtrField<std::string>& names) {
    return std::vector<std::string>(names.begin(), names.end());
  };
  v1::GetModelRequest get_model;
  get_model.set_model_id(f.client.model_id());
  v1::GetModelResponse model;
  REQUIRE(f.engine.engine().GetModel(CallContext(f.client.key()), get_model, &model).ok());
  CHECK(model.lora_alpha() == 16);
  CHECK(words(model.target_modules()) == expected);
  CHECK(model.train_attn());
  CHECK_FALSE(model.train_mlp());
  int num_created = 0;
  for (const v1::EngineMessage& message : f.worker.received()) {
    if (!message.has_create_adapter()) continue;
    ++num_created;
    CHECK(message.create_adapter().lora().alpha() == 16);
    CHECK(words(message.create_adapter().lora().target_modules()) == expected);
  }
  CHECK(num_created == 1);
}

TEST_CASE("Engine: a model has modules of its base model, as the last worker said", "[engine]") {
  TestEngine engine;
  FakeWorker::Options options = engine.WorkerOptions();
  options.lora_modules = {{"router", LoraFamily::kMlp}, {"q_proj", LoraFamily::kAttention}};
  std::optional<FakeWorker> worker(std::in_place, options);
  engine.WaitForBaseModel("tiny");
  Client client(engine, engine.MakeKey("default"));
  v1::CreateModelRequest create;
  create.set_session_id(client.session_id());
  create.set_base_model("tiny");
  create.mutable_lora_config()->set_rank(4);
  create.mutable_lora_config()->add_target_modules("up_proj");
  std::string id;
  const auto submit = [&] { return client.Submit(&v1::Engine::Stub::CreateModel, create, &id); };
  const std::string refusal =
      "lora_config.target_modules has 'up_proj', base model 'tiny' has router, q_proj";
  CHECK(submit().message() == refusal);
  worker.reset();
  engine.Restart();
  CHECK(submit().message() == refusal);  // from the store

  options.process_id = "process-2";
  options.lora_modules.push_back({"up_proj", LoraFamily::kMlp});
  worker.emplace(options);
  absl::Status status = submit();
  for (; !status.ok(); status = submit()) REQUIRE(status.message() == refusal);
  CHECK(client.Result(id).has_create_model());
}

TEST_CASE("Engine: before the first worker is ready, a model is asked for again", "[engine]") {
  TestEngine engine;
  Client client(engine, engine.MakeKey("default"));
  std::string id;
  CHECK(absl::IsUnavailable(client.CreateModel(&id)));
}

TEST_CASE("Engine: a session that ended days ago is over, not unknown", "[engine]") {
  TestEngine engine;
  const Client client(engine, engine.MakeKey("default"));
  v1::FinishSessionRequest finish;
  finish.set_session_id(client.session_id());
  finish.set_reason("success");
  v1::FinishSessionResponse finished;
  REQUIRE(engine.engine().FinishSession(CallContext(client.key()), finish, &finished).ok());
  engine.clock().Advance(absl::Hours(48));
  engine.Restart();
  CHECK(engine.engine().FinishSession(CallContext(client.key()), finish, &finished).ok());
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_session_id(client.session_id());
  v1::HeartbeatResponse answer;
  REQUIRE(engine.engine().Heartbeat(CallContext(client.key()), heartbeat, &answer).ok());
  CHECK(answer.finished());
  const std::string stranger = engine.MakeKey("other");
  const grpc::Status foreign = engine.engine().Heartbeat(CallContext(stranger), heartbeat, &answer);
  CHECK(foreign.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Engine: an invalid forward_backward fails through its future", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest request = f.client.TrainRequest(1);
  request.mutable_data(0)->mutable_model_input(0)->set_tokens(Tokens({1, 768, 3}));
  const std::string id = f.client.Accept(&v1::Engine::Stub::ForwardBackward, request);
  const v1::OperationResult result = f.client.Result(id);
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK(result.error().code() == "bad_token");
  CHECK(result.error().message() ==
        "data[0].model_input: token at position 1 is 768, vocabulary size is 768");
}

TEST_CASE("Engine: a body that could not be read uses up its seq_id", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest request;
  request.set_model_id(f.client.model_id());
  request.set_seq_id(1);
  request.set_malformed("data[3] ends at byte 17");
  const std::string id = f.client.Accept(&v1::Engine::Stub::ForwardBackward, request);
  const v1::OperationResult result = f.client.Result(id);
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK(result.error().code() == "malformed");
  CHECK(result.error().message() == "data[3] ends at byte 17");

  const std::string repeated = f.client.Accept(&v1::Engine::Stub::ForwardBackward, request);
  CHECK(repeated == id);
  const std::string next = f.client.Train(2);
  CHECK(f.client.Result(next).has_forward_backward());
}

TEST_CASE("Engine: copies of a sampling client get numbers of their own", "[engine]") {
  Fixture f;
  v1::CreateSamplingSessionRequest create;
  create.set_session_id(f.client.session_id());
  create.set_base_model("tiny");
  v1::CreateSamplingSessionResponse created;
  REQUIRE(
      f.engine.engine().CreateSamplingSession(CallContext(f.client.key()), create, &created).ok());
  v1::JoinSamplingSessionRequest join;
  join.set_sampling_session_id(created.sampling_session_id());
  v1::JoinSamplingSessionResponse joined;
  for (const int64_t number : {1, 2}) {
    REQUIRE(f.engine.engine().JoinSamplingSession(CallContext(f.client.key()), join, &joined).ok());
    CHECK(joined.client_counter() == number);
  }
  f.engine.Restart();
  REQUIRE(f.engine.engine().JoinSamplingSession(CallContext(f.client.key()), join, &joined).ok());
  CHECK(joined.client_counter() == 3);
  const std::string stranger = f.engine.MakeKey("other");
  CHECK(f.engine.engine().JoinSamplingSession(CallContext(stranger), join, &joined).error_code() ==
        grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Engine: an inflight save under a name is refused", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::SaveWeightsForSamplerRequest save;
  save.set_model_id(f.client.model_id());
  save.set_seq_id(1);
  save.set_name("x");
  save.set_kind("inflight");
  std::string id;
  const absl::Status status = f.client.Submit(&v1::Engine::Stub::SaveWeightsForSampler, save, &id);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(status) == "kind");
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
  const std::string id = f.client.Accept(&v1::Engine::Stub::OptimStep, step);
  const v1::OperationResult result = f.client.Result(id);
  CHECK(result.error().category() == v1::ERROR_CATEGORY_USER);
  CHECK_THAT(result.error().message(), Catch::Contains("dimuon"));
}

TEST_CASE("Engine: a repeated request has one id, another content is refused", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  CHECK(f.client.Train(1) == f.client.Train(1));
  std::string id;
  const absl::Status other =
      f.client.Submit(&v1::Engine::Stub::ForwardBackward, f.client.TrainRequest(1, 4), &id);
  CHECK(other.code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorCode(other) == "seq_id_reused");
}

TEST_CASE("Engine: a pending result is answered as pending when its time is up", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  f.worker.Detach();
  const std::string id = f.client.Train(1);
  v1::GetResultResponse response;
  REQUIRE(f.client.GetResult(id, &response, 0).ok());
  CHECK_FALSE(response.has_result());
  REQUIRE(f.client.GetResult(id, &response, 1).ok());
  CHECK_FALSE(response.has_result());
}

TEST_CASE("Engine: a watch stream reports finished and unknown requests", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  const std::string id = f.client.Train(1);
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
  v1::OperationResult result;
  REQUIRE(result.ParseFromString(response.encoded_result()));
  CHECK(result.has_forward_backward());

  request.mutable_subscribe()->set_api_key(stranger);
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK(response.error().code() == "not_found");
  CHECK(response.encoded_result().empty());

  request.mutable_subscribe()->set_api_key("nonsense");
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK(response.error().code() == "unauthenticated");
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

TEST_CASE("Engine: a failure on a watch stream is delivered once it was acknowledged", "[engine]") {
  const std::string acknowledged_by = GENERATE("nobody", "its tenant", "another tenant");
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest invalid = f.client.TrainRequest(1);
  invalid.clear_data();
  const std::string id = f.client.Accept(&v1::Engine::Stub::ForwardBackward, invalid);
  const std::string stranger = f.engine.MakeKey("other");

  CallContext context(f.client.key());
  auto stream = f.engine.engine().Watch(context);
  v1::WatchRequest request;
  v1::WatchResponse response;
  request.mutable_subscribe()->set_request_id(id);
  request.mutable_subscribe()->set_api_key(f.client.key());
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&response));
  CHECK_FALSE(response.encoded_result().empty());
  v1::GetResultRequest handed_on;
  handed_on.set_request_id(id);
  handed_on.set_acknowledges(true);
  v1::GetResultResponse result;
  REQUIRE(f.engine.engine().GetResult(CallContext(f.client.key()), handed_on, &result).ok());
  CHECK(result.result().has_error());

  if (acknowledged_by != "nobody") {
    const bool is_own = acknowledged_by == "its tenant";
    request.mutable_delivered()->set_request_id(id);
    request.mutable_delivered()->set_api_key(is_own ? f.client.key() : stranger);
    REQUIRE(stream->Write(request));
  }
  REQUIRE(stream->Write(v1::WatchRequest()));
  REQUIRE(stream->Read(&response));  // so all before it was read
  std::string step_id;
  REQUIRE(f.client.OptimStep(2, &step_id).ok());
  const v1::OperationResult step = f.client.Result(step_id);
  CHECK(step.has_optim_step() == (acknowledged_by == "its tenant"));
  if (step.has_error()) CHECK(step.error().code() == "incomplete_gradient");
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

TEST_CASE("Engine: a failure that GetResult returned is delivered", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  v1::ForwardBackwardRequest invalid = f.client.TrainRequest(1);
  invalid.clear_data();
  CHECK(f.client.Result(f.client.Accept(&v1::Engine::Stub::ForwardBackward, invalid)).has_error());
  f.client.Result(f.client.Train(2));
  std::string step_id;
  REQUIRE(f.client.OptimStep(3, &step_id).ok());
  CHECK(f.client.Result(step_id).has_optim_step());
}

TEST_CASE("Engine: a repeated subscription gets the notification again, and no other one does",
          "[engine]") {
  Fixture f;
  f.client.MakeModel();
  f.worker.Detach();
  const std::string id = f.client.Train(1);
  const std::string stranger = f.engine.MakeKey("other");

  CallContext context(f.client.key());
  auto stream = f.engine.engine().Watch(context);
  v1::WatchRequest request;
  request.mutable_subscribe()->set_request_id(id);
  request.mutable_subscribe()->set_api_key(f.client.key());
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Write(request));
  v1::WatchResponse response;
  REQUIRE(stream->Read(&response));
  CHECK(response.request_id() == id);
  CHECK_FALSE(response.done());
  CHECK(response.queue_state() != v1::QUEUE_STATE_UNSPECIFIED);

  request.mutable_subscribe()->set_api_key(stranger);
  REQUIRE(stream->Write(request));
  do REQUIRE(stream->Read(&response));
  while (!response.has_error());
  CHECK(response.error().code() == "not_found");
  CHECK(response.queue_state_reason().empty());
  stream->WritesDone();
  while (stream->Read(&response)) {
  }
  CHECK(stream->Finish().ok());
}

TEST_CASE("Engine: results and accepted work survive a restart", "[engine]") {
  Fixture f;
  f.client.MakeModel();
  const std::string done_id = f.client.Train(1);
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
  const std::string id = f.client.Accept(&v1::Engine::Stub::ForwardBackward, request);
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

}  // namespace
}  // namespace lathe::engine
