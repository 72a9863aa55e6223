#include "services/api-gateway/json/result_json.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "libs/common/status_macros.h"
#include "services/api-gateway/json/tensor_json.h"

namespace lathe::gateway {
namespace {

Json ErrorToJson(const v1::Error& error) {
  Json json = {{"error", error.message()},
               {"category", error.category() == v1::ERROR_CATEGORY_USER ? "user" : "server"},
               {"code", error.code()}};
  if (!error.field().empty()) json["param"] = error.field();
  return json;
}

template <typename Metrics>
Json MetricsToJson(const Metrics& metrics) {
  Json json = Json::object();
  for (const v1::NamedNumber& metric : metrics) {
    if (std::isfinite(metric.value())) json[metric.name()] = metric.value();
  }
  return json;
}

Json ForwardBackwardToJson(const v1::ForwardBackwardResult& result) {
  Json outputs = Json::array();
  for (const v1::DatumOutput& output : result.outputs()) {
    const int64_t num_elements = static_cast<int64_t>(output.logprobs().size() / sizeof(float));
    Json shape = {num_elements};
    if (output.num_targets() > 0) {
      shape = {num_elements / output.num_targets(), output.num_targets()};
    }
    Json tensor = {{"data", UnpackList<float>(output.logprobs())},
                   {"dtype", "float32"},
                   {"shape", std::move(shape)}};
    outputs.push_back({{"logprobs", std::move(tensor)}});
  }
  return {{"loss_fn_output_type", "ArrayRecord"},
          {"loss_fn_outputs", std::move(outputs)},
          {"metrics", MetricsToJson(result.metrics())}};
}

// Returns rows of [token id, logprob] pairs, without the sentinel entries at a row's end. An
// undefined row becomes null.
Json TopkToJson(const v1::TopkLogprobs& topk) {
  constexpr float kSentinelLogprob = -99999.0f;
  const Json ids = UnpackList<int32_t>(topk.token_ids());
  const Json logprobs = UnpackList<float>(topk.logprobs());
  Json rows = Json::array();
  for (int64_t row = 0; row < topk.length(); ++row) {
    Json pairs = Json::array();
    for (size_t i = row * topk.k(); i < static_cast<size_t>((row + 1) * topk.k()); ++i) {
      if (i >= ids.size() || i >= logprobs.size()) break;
      if (ids[i] == 0 && logprobs[i] == kSentinelLogprob) break;
      pairs.push_back(Json::array({ids[i], logprobs[i]}));
    }
    rows.push_back(pairs.empty() ? Json(nullptr) : std::move(pairs));
  }
  return rows;
}

Json SampleToJson(const v1::SampleResult& result) {
  Json sequences = Json::array();
  for (const v1::SampledSequence& sequence : result.sequences()) {
    sequences.push_back({{"stop_reason", sequence.stopped() ? "stop" : "length"},
                         {"tokens", UnpackList<int32_t>(sequence.tokens())},
                         {"logprobs", UnpackList<float>(sequence.logprobs())}});
    if (sequence.has_topk_logprobs()) {
      sequences.back()["topk_logprobs"] = TopkToJson(sequence.topk_logprobs());
    }
  }
  Json json = {{"type", "sample"},
               {"sequences", std::move(sequences)},
               {"prompt_cache_hit_tokens", result.prompt_cache_hit_tokens()}};
  if (!result.prompt_logprobs().empty()) {
    json["prompt_logprobs"] = UnpackList<float>(result.prompt_logprobs());
  }
  if (result.has_topk_prompt_logprobs()) {
    json["topk_prompt_logprobs"] = TopkToJson(result.topk_prompt_logprobs());
  }
  if (result.has_target_prompt_logprobs()) {
    json["target_prompt_logprobs"] = TensorToJson(result.target_prompt_logprobs());
  }
  if (result.has_prompt_alt_tokens()) {
    json["prompt_alt_tokens"] = {{"tokens", TensorToJson(result.prompt_alt_tokens().tokens())},
                                 {"logprobs", TensorToJson(result.prompt_alt_tokens().logprobs())}};
  }
  return json;
}

Json SaveForSamplerToJson(const v1::SaveWeightsForSamplerResult& result) {
  Json json = {
      {"type", "save_weights_for_sampler"}, {"path", nullptr}, {"sampling_session_id", nullptr}};
  if (!result.path().empty()) json["path"] = result.path();
  if (!result.sampling_session_id().empty()) {
    json["sampling_session_id"] = result.sampling_session_id();
  }
  return json;
}

const char* StateName(v1::QueueState state) {
  switch (state) {
    case v1::QUEUE_STATE_PAUSED_CAPACITY:
      return "paused_capacity";
    case v1::QUEUE_STATE_PAUSED_RATE_LIMIT:
      return "paused_rate_limit";
    default:
      return "active";
  }
}

// The server never uses this permission: results are always whole.
void CheckMetadataOnly(LargeObject& in, std::string_view name, google::protobuf::Message&) {
  in.BoolOf(name, *in.Find(name));
}

constexpr Field kRetrieveFutureFields[] = {
    {.name = "request_id", .is_required = true},
    {.name = "allow_metadata_only", .read = CheckMetadataOnly, .schema = R"("type": "boolean")"},
};

using google::protobuf::Message;

constexpr char kTargetType[] = "sampling_session";

void CheckTargetType(LargeObject& in, std::string_view name, Message&) {
  if (in.String(name) != kTargetType) in.errors().Fail(in.PointerTo(name), kTargetType);
}

void ReadTimeout(LargeObject& in, std::string_view name, Message& message) {
  const double seconds = in.NumberOf(name, *in.Find(name));
  if (seconds < 0) in.errors().Fail(in.PointerTo(name), "0 or more seconds");
  auto& request = static_cast<v1::AwaitSamplesRequest&>(message);
  request.set_wait_ms(absl::ToInt64Milliseconds(absl::Seconds(seconds)));
}

constexpr Field kTargetFields[] = {
    {.name = "type",
     .read = CheckTargetType,
     .schema = R"("type": "string", "enum": ["sampling_session"])"},
    {.name = "sampling_session_id", .is_required = true},
    {.name = "cloned_sampler_id",
     .to = "clone_number",
     .about = "seq_id // 1,000,000,000 of the samples."},
};
constexpr ObjectFields kTarget = {"", kTargetFields};
constexpr Field kAwaitSamplesFields[] = {
    {.name = "target", .to = kSame, .is_required = true, .object = &kTarget},
    {.name = "prev_cursor",
     .to = "cursor",
     .about =
         "Cursor of the last answer; 0 at first. It acknowledges the samples listed until then."},
    {.name = "timeout",
     .read = ReadTimeout,
     .about = "Seconds to wait; the server may wait less. 0: answer at once.",
     .schema = R"("type": "number")"},
    {.name = "retrieved_request_ids",
     .about = "Ids of results that the client has. The engine drops them from memory."},
};

}  // namespace

constexpr BodyFields<v1::GetResultRequest> kRetrieveFuture = {
    {"RetrieveFutureRequest", kRetrieveFutureFields}};

Json ResultToJson(const v1::OperationResult& result) {
  switch (result.outcome_case()) {
    case v1::OperationResult::kError:
      return ErrorToJson(result.error());
    case v1::OperationResult::kCreateModel:
      return {{"type", "create_model"}, {"model_id", result.create_model().model_id()}};
    case v1::OperationResult::kUnloadModel:
      return {{"type", "unload_model"}, {"model_id", result.unload_model().model_id()}};
    case v1::OperationResult::kForwardBackward:
      return ForwardBackwardToJson(result.forward_backward());
    case v1::OperationResult::kOptimStep:
      return {{"metrics", MetricsToJson(result.optim_step().metrics())}};
    case v1::OperationResult::kSaveWeights:
      return {{"type", "save_weights"}, {"path", result.save_weights().path()}};
    case v1::OperationResult::kSaveWeightsForSampler:
      return SaveForSamplerToJson(result.save_weights_for_sampler());
    case v1::OperationResult::kSaveWeightsExternal:
      return {{"type", "save_weights_external"},
              {"path", result.save_weights_external().path()},
              {"size_bytes", result.save_weights_external().size_bytes()}};
    case v1::OperationResult::kLoadWeights:
      return {{"type", "load_weights"},
              {"model_id", result.load_weights().model_id()},
              {"path", result.load_weights().path()}};
    case v1::OperationResult::kSample:
      return SampleToJson(result.sample());
    case v1::OperationResult::OUTCOME_NOT_SET:
      return Json::object();
  }
  return Json::object();
}

Json TryAgainToJson(const std::string& request_id, v1::QueueState state,
                    const std::string& reason) {
  return {{"type", "try_again"},
          {"request_id", request_id},
          {"queue_state", StateName(state)},
          {"queue_state_reason", reason.empty() ? Json(nullptr) : Json(reason)}};
}

constexpr BodyFields<v1::AwaitSamplesRequest> kAwaitSamples = {
    {"RetrieveFuturesRequest", kAwaitSamplesFields}};

absl::StatusOr<v1::AwaitSamplesRequest> AwaitSamplesFromJson(const std::string& body,
                                                             absl::Duration hold) {
  const int64_t hold_ms = absl::ToInt64Milliseconds(hold);
  v1::AwaitSamplesRequest request;
  request.set_wait_ms(hold_ms);
  RETURN_IF_ERROR(ReadMessage(body, kAwaitSamples, request));
  request.set_wait_ms(std::min(request.wait_ms(), hold_ms));
  return request;
}

Json AwaitSamplesToJson(const v1::AwaitSamplesResponse& response) {
  Json completions = Json::array();
  for (const v1::EndedSample& sample : response.samples()) {
    Json completion = {{"state", sample.failed() ? "failed" : "finished"},
                       {"request_id", sample.request_id()}};
    if (!sample.failed() && sample.result_bytes() > 0) {
      completion["response_payload_uncompressed_size"] = sample.result_bytes();
    }
    completions.push_back(std::move(completion));
  }
  return {{"completions", std::move(completions)}, {"cursor", response.cursor()}};
}

}  // namespace lathe::gateway
