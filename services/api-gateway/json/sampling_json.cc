#include "services/api-gateway/json/sampling_json.h"

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/tensor_json.h"

namespace lathe::gateway {
namespace {

using google::protobuf::Message;
using simdjson::dom::element;

void ReadStop(LargeObject& in, std::string_view name, Message& message) {
  auto* const params = static_cast<v1::SamplingParams*>(&message);
  const auto stop = in.Find(name);
  std::string_view text;
  if (stop->get(text) == simdjson::SUCCESS) {
    params->mutable_stop_strings()->add_values(std::string(text));
    return;
  }
  simdjson::dom::array list;
  if (stop->get(list) != simdjson::SUCCESS) {
    in.errors().Fail(in.PointerTo(name), "a string or a list");
    return;
  }
  if (in.errors().IsCut(list)) {
    return Unpack(PackInt32(list, in.PointerTo(name), in.errors()),
                  params->mutable_stop_tokens()->mutable_values());
  }
  // An empty list differs from an absent one: only max_tokens then stops the sample.
  if (list.size() == 0) params->mutable_stop_strings();
  for (const element value : list) {
    if (value.get(text) == simdjson::SUCCESS) {
      params->mutable_stop_strings()->add_values(std::string(text));
    } else {
      in.errors().Fail(in.PointerTo(name), "only strings or only 32-bit token ids");
    }
  }
}

// These options are in the SDK's schema, but the SDK never sends them. The sampling session names
// the weights.
void ReadUnsupported(LargeObject&, std::string_view name, Message& message) {
  static_cast<v1::SampleRequest&>(message).add_unsupported_options(std::string(name));
}

void ReadPrompt(LargeObject& in, std::string_view name, Message& message) {
  LargeObject prompt = in.Object(name);
  ReadChunks(prompt.Array("chunks"), prompt.PointerTo("chunks"), in.errors(),
             static_cast<v1::SampleRequest&>(message).mutable_prompt());
}

void ReadTargets(LargeObject& in, std::string_view name, Message& message) {
  ReadTensor(in.Object(name),
             static_cast<v1::SampleRequest&>(message).mutable_target_prompt_logprobs());
}

constexpr Field kSamplingParamsFields[] = {
    {.name = "max_tokens", .schema = R"("minimum": 1)"},
    {.name = "seed"},
    {.name = "temperature", .fallback = 1.0, .schema = R"("minimum": 0)"},
    {.name = "top_k", .fallback = -1, .about = "-1: off."},
    {.name = "top_p", .fallback = 1.0, .schema = R"("exclusiveMinimum": 0, "maximum": 1)"},
    {.name = "min_p",
     .fallback = 0.0,
     .about = "Keeps tokens this share as likely as the most likely one; 0: off.",
     .schema = R"("minimum": 0, "maximum": 1)"},
    {.name = "stop",
     .read = ReadStop,
     .about = "Strings or token ids, at most 64. []: only max_tokens stops.",
     .schema = R"("oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}},
                            {"type": "array", "items": {"type": "integer"}}])"},
};
constexpr ObjectFields kSamplingParams = {"SamplingParams", kSamplingParamsFields};

constexpr char kTopK[] = R"("minimum": 0, "maximum": 128)";
constexpr Field kSampleFields[] = {
    {.name = "prompt", .is_required = true, .read = ReadPrompt, .ref = "ModelInput"},
    {.name = "sampling_session_id", .is_required = true},
    {.name = "seq_id", .is_required = true, .schema = R"("minimum": 0)"},
    {.name = "num_samples", .fallback = 1, .schema = R"("minimum": 1, "maximum": 1024)"},
    {.name = "sampling_params", .to = "params", .is_required = true, .object = &kSamplingParams},
    {.name = "prompt_logprobs"},
    {.name = "prompt_logprobs_last_n",
     .is_nullable = true,
     .about = "Prompt logprobs of the last so many tokens only.",
     .schema = R"("minimum": 1)"},
    {.name = "topk_prompt_logprobs", .schema = kTopK},
    {.name = "topk_sample_logprobs", .schema = kTopK},
    {.name = "prompt_alt_tokens_k",
     .about = "Tokens drawn at each prompt position after the first.",
     .schema = kTopK},
    {.name = "target_prompt_logprobs", .read = ReadTargets, .ref = "Tensor"},
    {.name = "record_stability_info"},
    {.name = "base_model", .read = ReadUnsupported},
    {.name = "model_path", .read = ReadUnsupported},
};

constexpr Field kCreateSamplingSessionFields[] = {
    {.name = "session_id", .is_required = true},
    {.name = "sampling_session_seq_id", .is_required = true, .schema = R"("minimum": 0)"},
    {.name = "base_model"},
    {.name = "model_path", .about = "tinker://…; wins over base_model."},
};
constexpr Field kJoinFields[] = {{.name = "sampling_session_id", .is_required = true}};
constexpr Field kCancelFields[] = {{.name = "request_id", .is_required = true}};

}  // namespace

constexpr BodyFields<v1::CreateSamplingSessionRequest> kCreateSamplingSession = {
    {"CreateSamplingSessionRequest", kCreateSamplingSessionFields}};
constexpr BodyFields<v1::JoinSamplingSessionRequest> kJoinSamplingSession = {
    {"JoinSamplingSessionRequest", kJoinFields}};
constexpr BodyFields<v1::SampleRequest> kSample = {{"SampleRequest", kSampleFields}};
constexpr BodyFields<v1::CancelSampleRequest> kCancelFuture = {
    {"CancelFutureRequest", kCancelFields}};

Json CreateSamplingSessionToJson(const v1::CreateSamplingSessionResponse& response) {
  return {{"type", "create_sampling_session"},
          {"sampling_session_id", response.sampling_session_id()}};
}

Json JoinSamplingSessionToJson(const v1::JoinSamplingSessionResponse& response) {
  return {{"client_counter", response.client_counter()}};
}

Json GetSamplerToJson(const v1::GetSamplerResponse& response) {
  Json sampler = {{"sampler_id", response.sampler_id()},
                  {"base_model", response.base_model()},
                  {"model_path", nullptr}};
  if (!response.model_path().empty()) sampler["model_path"] = response.model_path();
  return sampler;
}

void ReadChunks(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                google::protobuf::RepeatedPtrField<v1::Chunk>* chunks) {
  size_t index = 0;
  for (const element value : list) {
    LargeObject in(value, absl::StrCat(pointer, "/", index++), errors);
    const std::string type = in.StringOr("type", "encoded_text");
    v1::Chunk* chunk = chunks->Add();
    if (type == "encoded_text") {
      chunk->set_tokens(PackInt32(in.Array("tokens"), in.PointerTo("tokens"), errors));
    } else {
      chunk->set_unsupported(type);
    }
    if (!errors.ok()) return;
  }
}

absl::StatusOr<v1::SampleRequest> SampleFromJson(const std::string& body) {
  simdjson::dom::parser parser;
  LargeContext errors;
  v1::SampleRequest request;
  RETURN_IF_ERROR(ReadLargeJson(parser, body, /*outer_depth=*/0, errors,
                                [&request](element root, LargeContext& context) {
                                  request.Clear();
                                  LargeObject in(root, "", context);
                                  ReadFields(in, kSample, request);
                                }));
  RETURN_IF_ERROR(errors.status());
  return request;
}

Json SampleFutureToJson(const v1::SampleSubmitResponse& response) {
  Json ids = Json::array();
  for (const std::string& id : response.sample_sequence_ids()) ids.push_back(id);
  return {{"request_id", response.request_id()}, {"sample_sequence_ids", std::move(ids)}};
}

}  // namespace lathe::gateway
