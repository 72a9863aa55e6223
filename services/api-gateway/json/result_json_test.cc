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

TEST_CASE("An error becomes what the SDK raises from", "[json]") {
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

TEST_CASE("A pending poll says so", "[json]") {
  CHECK(
      TryAgainToJson("r1", v1::QUEUE_STATE_PAUSED_CAPACITY, "").dump() ==
      R"({"queue_state":"paused_capacity","queue_state_reason":null,"request_id":"r1","type":"try_again"})");
  CHECK(TryAgainToJson("r1", v1::QUEUE_STATE_UNSPECIFIED, "x")["queue_state"] == "active");
}

}  // namespace
}  // namespace lathe::gateway
