#include "services/api-gateway/json/result_json.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace lathe::gateway {
namespace {

template <typename T>
std::string Pack(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

constexpr absl::Duration kHold = absl::Seconds(20);

absl::StatusOr<v1::AwaitSamplesRequest> Read(const char* text) {
  return AwaitSamplesFromJson(text, kHold);
}

void AddMetric(const std::string& name, double value, v1::OptimStepResult* result) {
  v1::NamedNumber* metric = result->add_metrics();
  metric->set_name(name);
  metric->set_value(value);
}

TEST_CASE("Metrics that are not finite are dropped", "[json]") {
  v1::OperationResult result;
  AddMetric("grad_norm", 1.5, result.mutable_optim_step());
  AddMetric("bad", std::nan(""), result.mutable_optim_step());
  AddMetric("worse", std::numeric_limits<double>::infinity(), result.mutable_optim_step());
  CHECK(ResultToJson(result).dump() == R"({"metrics":{"grad_norm":1.5}})");
}

TEST_CASE("An error has the form from which the SDK raises its exceptions", "[json]") {
  v1::OperationResult result;
  result.mutable_error()->set_message("rank 7 is not served");
  result.mutable_error()->set_category(v1::ERROR_CATEGORY_USER);
  const Json json = ResultToJson(result);
  CHECK(json["error"] == "rank 7 is not served");
  CHECK(json["category"] == "user");
  result.mutable_error()->set_category(v1::ERROR_CATEGORY_SERVER);
  CHECK(ResultToJson(result)["category"] == "server");
}

TEST_CASE("Both forms of a sampler save are answered with null for the other", "[json]") {
  v1::OperationResult named;
  named.mutable_save_weights_for_sampler()->set_path("tinker://m/sampler_weights/a");
  CHECK(ResultToJson(named)["path"] == "tinker://m/sampler_weights/a");
  v1::OperationResult unnamed;
  unnamed.mutable_save_weights_for_sampler()->set_sampling_session_id("s:sample:0");
  CHECK(ResultToJson(unnamed)["path"].is_null());
  CHECK(ResultToJson(unnamed)["sampling_session_id"] == "s:sample:0");
}

TEST_CASE("forward_backward as JSON has shapes of its targets", "[json]") {
  v1::OperationResult result;
  v1::DatumOutput* one = result.mutable_forward_backward()->add_outputs();
  one->set_logprobs(Pack<float>({-1.5f, NAN}));
  v1::DatumOutput* two = result.mutable_forward_backward()->add_outputs();
  two->set_logprobs(Pack<float>({1, 2, 3, 4, 5, 6}));
  two->set_num_targets(3);
  const Json outputs = ResultToJson(result)["loss_fn_outputs"];
  CHECK(outputs[0]["logprobs"].dump() == R"({"data":[-1.5,null],"dtype":"float32","shape":[2]})");
  CHECK(outputs[1]["logprobs"]["shape"].dump() == "[2,3]");
}

TEST_CASE("A sample as JSON has stop reasons, logprobs and cut top-k rows", "[json]") {
  v1::OperationResult result;
  v1::SampledSequence* sequence = result.mutable_sample()->add_sequences();
  sequence->set_stopped(true);
  sequence->set_tokens(Pack<int32_t>({5, 6}));
  sequence->set_logprobs(Pack<float>({-0.5f, -0.25f}));
  v1::TopkLogprobs* topk = result.mutable_sample()->mutable_topk_prompt_logprobs();
  topk->set_k(2);
  topk->set_length(2);
  topk->set_token_ids(Pack<int32_t>({0, 0, 9, 0}));
  topk->set_logprobs(Pack<float>({-99999.0f, -99999.0f, -0.5f, -99999.0f}));
  const Json json = ResultToJson(result);
  CHECK(json["sequences"][0].dump() ==
        R"({"logprobs":[-0.5,-0.25],"stop_reason":"stop","tokens":[5,6]})");
  CHECK(json["topk_prompt_logprobs"].dump() == "[null,[[9,-0.5]]]");
  CHECK_FALSE(json.contains("prompt_logprobs"));
}

TEST_CASE("Scores of a sample as JSON have the shape of the question", "[json]") {
  v1::OperationResult result;
  v1::SampleResult* sample = result.mutable_sample();
  v1::TopkLogprobs* topk = sample->add_sequences()->mutable_topk_logprobs();
  topk->set_k(2);
  topk->set_length(1);
  topk->set_token_ids(Pack<int32_t>({4, 9}));
  topk->set_logprobs(Pack<float>({-0.5f, -1.5f}));
  v1::Tensor* targets = sample->mutable_target_prompt_logprobs();
  targets->set_dtype(v1::DTYPE_FLOAT32);
  targets->add_shape(1);
  targets->add_shape(3);
  targets->mutable_sparse_csr()->set_values(Pack<float>({-2.5f}));
  targets->mutable_sparse_csr()->set_crow_indices(Pack<int64_t>({0, 1}));
  targets->mutable_sparse_csr()->set_col_indices(Pack<int64_t>({2}));
  v1::Tensor* drawn = sample->mutable_prompt_alt_tokens()->mutable_tokens();
  drawn->set_dtype(v1::DTYPE_INT32);
  drawn->add_shape(1);
  drawn->add_shape(2);
  drawn->set_dense(Pack<int32_t>({8, 7}));
  const Json json = ResultToJson(result);
  CHECK(json["sequences"][0]["topk_logprobs"].dump() == "[[[4,-0.5],[9,-1.5]]]");
  CHECK(
      json["target_prompt_logprobs"].dump() ==
      R"({"data":[-2.5],"dtype":"float32","shape":[1,3],"sparse_col_indices":[2],"sparse_crow_indices":[0,1]})");
  CHECK(json["prompt_alt_tokens"]["tokens"].dump() ==
        R"({"data":[8,7],"dtype":"int64","shape":[1,2]})");
}

TEST_CASE("A pending poll says so", "[json]") {
  CHECK(
      TryAgainToJson("r1", v1::QUEUE_STATE_PAUSED_CAPACITY, "").dump() ==
      R"({"queue_state":"paused_capacity","queue_state_reason":null,"request_id":"r1","type":"try_again"})");
  CHECK(TryAgainToJson("r1", v1::QUEUE_STATE_UNSPECIFIED, "x")["queue_state"] == "active");
}

TEST_CASE("ResultJson: reads a poll of the SDK", "[json]") {
  const auto request =
      Read(R"({"target":{"type":"sampling_session","sampling_session_id":"s:sample:0",)"
           R"("cloned_sampler_id":3},"prev_cursor":9,"retrieved_request_ids":["r1","r2"]})");
  REQUIRE(request.ok());
  CHECK(request->sampling_session_id() == "s:sample:0");
  CHECK(request->clone_number() == 3);
  CHECK(request->cursor() == 9);
  CHECK(request->wait_ms() == 20'000);
  CHECK(request->retrieved_request_ids_size() == 2);
}

TEST_CASE("ResultJson: an absent field has its default", "[json]") {
  const auto request = Read(R"({"target":{"sampling_session_id":"s"},"timeout":null})");
  REQUIRE(request.ok());
  CHECK(request->clone_number() == 0);
  CHECK(request->cursor() == 0);
  CHECK(request->wait_ms() == 20'000);
}

TEST_CASE("ResultJson: a timeout shortens the hold, and no more", "[json]") {
  const auto wait = [](const char* timeout) {
    const std::string body =
        std::string(R"({"target":{"sampling_session_id":"s"},"timeout":)") + timeout + "}";
    return Read(body.c_str())->wait_ms();
  };
  CHECK(wait("0") == 0);
  CHECK(wait("0.0") == 0);
  CHECK(wait("1.5") == 1500);
  CHECK(wait("1e300") == 20'000);
}

TEST_CASE("ResultJson: an error names the invalid field", "[json]") {
  const auto [body, pointer] = GENERATE(table<const char*, const char*>(
      {{R"({})", "/target/sampling_session_id"},
       {R"({"target":5})", "/target"},
       {R"({"target":{"type":"model","sampling_session_id":"s"}})", "/target/type"},
       {R"({"target":{"sampling_session_id":"s","cloned_sampler_id":"0"}})",
        "/target/cloned_sampler_id"},
       {R"({"target":{"sampling_session_id":"s"},"prev_cursor":0.5})", "/prev_cursor"},
       {R"({"target":{"sampling_session_id":"s"},"timeout":-1})", "/timeout"},
       {R"({"target":{"sampling_session_id":"s"},"timeout":"0"})", "/timeout"},
       {R"({"target":{"sampling_session_id":"s"},"retrieved_request_ids":"r"})",
        "/retrieved_request_ids"},
       {R"({"target":{"sampling_session_id":"s"},"retrieved_request_ids":[1]})",
        "/retrieved_request_ids"}}));
  INFO(body);
  const absl::Status status = Read(body).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains(pointer));
}

TEST_CASE("ResultJson: each sample has its outcome", "[json]") {
  v1::AwaitSamplesResponse response;
  response.set_cursor(12);
  v1::EndedSample* sample = response.add_samples();
  sample->set_request_id("r1");
  sample->set_result_bytes(100);
  sample = response.add_samples();
  sample->set_request_id("r2");
  sample->set_failed(true);
  sample->set_result_bytes(50);
  response.add_samples()->set_request_id("r3");
  CHECK(AwaitSamplesToJson(response) ==
        Json::parse(R"({"completions":[)"
                    R"({"state":"finished","request_id":"r1",)"
                    R"("response_payload_uncompressed_size":100},)"
                    R"({"state":"failed","request_id":"r2"},)"
                    R"({"state":"finished","request_id":"r3"}],"cursor":12})"));
  CHECK(AwaitSamplesToJson(v1::AwaitSamplesResponse())["completions"].is_array());
}

}  // namespace
}  // namespace lathe::gateway
