#include "services/api-gateway/json/sampling_json.h"

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/field_reader.h"
#include "services/api-gateway/json/tensor_json.h"

namespace lathe::gateway {
namespace {

using simdjson::dom::element;

void ReadStop(LargeObject& in, v1::SamplingParams* params) {
  const auto stop = in.Find("stop");
  if (!stop) return;
  std::string_view text;
  if (stop->get(text) == simdjson::SUCCESS) {
    params->mutable_stop_strings()->add_values(std::string(text));
    return;
  }
  simdjson::dom::array list;
  if (stop->get(list) != simdjson::SUCCESS) {
    in.errors().Fail(in.PointerTo("stop"), "a string or a list");
    return;
  }
  // An empty list differs from an absent one: only max_tokens then stops the sample.
  if (list.size() == 0) params->mutable_stop_strings();
  for (const element value : list) {
    int64_t token = 0;
    if (value.get(text) == simdjson::SUCCESS && !params->has_stop_tokens()) {
      params->mutable_stop_strings()->add_values(std::string(text));
    } else if (value.get(token) == simdjson::SUCCESS && !params->has_stop_strings() &&
               token == static_cast<int32_t>(token)) {
      params->mutable_stop_tokens()->add_values(static_cast<int32_t>(token));
    } else {
      in.errors().Fail(in.PointerTo("stop"), "only strings or only 32-bit token ids");
    }
  }
}

void ReadSamplingParams(LargeObject in, v1::SamplingParams* params) {
  if (const auto max_tokens = in.OptionalInt("max_tokens")) params->set_max_tokens(*max_tokens);
  if (const auto seed = in.OptionalSeed("seed")) params->set_seed(*seed);
  params->set_temperature(in.NumberOr("temperature", 1.0));
  params->set_top_k(in.IntOr("top_k", -1));
  params->set_top_p(in.NumberOr("top_p", 1.0));
  params->set_min_p(in.NumberOr("min_p", 0.0));
  ReadStop(in, params);
}

// Reads which log probabilities to return besides the samples.
void ReadScores(LargeObject& in, v1::SampleRequest* request) {
  request->set_prompt_logprobs(in.BoolOr("prompt_logprobs", false));
  request->set_topk_prompt_logprobs(in.IntOr("topk_prompt_logprobs", 0));
  request->set_topk_sample_logprobs(in.IntOr("topk_sample_logprobs", 0));
  request->set_prompt_alt_tokens_k(in.IntOr("prompt_alt_tokens_k", 0));
  if (const auto last_n = in.OptionalInt("prompt_logprobs_last_n")) {
    request->set_prompt_logprobs_last_n(*last_n);
  }
  if (in.Has("target_prompt_logprobs")) {
    ReadTensor(in.Object("target_prompt_logprobs"), request->mutable_target_prompt_logprobs());
  }
}

// These options are in the SDK's schema, but the SDK never sends them. The sampling session names
// the weights.
void ReadUnsupportedOptions(LargeObject& in, v1::SampleRequest* request) {
  for (const char* option : {"base_model", "model_path"}) {
    if (in.Has(option)) request->add_unsupported_options(option);
  }
}

}  // namespace

absl::StatusOr<v1::CreateSamplingSessionRequest> CreateSamplingSessionFromJson(const Json& body) {
  FieldReader in(body);
  v1::CreateSamplingSessionRequest request;
  request.set_session_id(in.String("session_id"));
  request.set_sampling_session_seq_id(in.Int("sampling_session_seq_id"));
  request.set_base_model(in.StringOr("base_model", ""));
  request.set_model_path(in.StringOr("model_path", ""));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json CreateSamplingSessionToJson(const v1::CreateSamplingSessionResponse& response) {
  return {{"type", "create_sampling_session"},
          {"sampling_session_id", response.sampling_session_id()}};
}

absl::StatusOr<v1::JoinSamplingSessionRequest> JoinSamplingSessionFromJson(const Json& body) {
  FieldReader in(body);
  v1::JoinSamplingSessionRequest request;
  request.set_sampling_session_id(in.String("sampling_session_id"));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json JoinSamplingSessionToJson(const v1::JoinSamplingSessionResponse& response) {
  return {{"client_counter", response.client_counter()}};
}

absl::StatusOr<v1::CancelSampleRequest> CancelFutureFromJson(const Json& body) {
  FieldReader in(body);
  v1::CancelSampleRequest request;
  request.set_request_id(in.String("request_id"));
  RETURN_IF_ERROR(in.status());
  return request;
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
  ASSIGN_OR_RETURN(const element root, ParseLargeJson(parser, body));
  LargeContext errors;
  LargeObject in(root, "", errors);
  LargeObject prompt = in.Object("prompt");
  v1::SampleRequest request;
  request.set_sampling_session_id(in.String("sampling_session_id"));
  request.set_seq_id(in.Int("seq_id"));
  ReadChunks(prompt.Array("chunks"), "/prompt/chunks", errors, request.mutable_prompt());
  request.set_num_samples(in.IntOr("num_samples", 1));
  ReadSamplingParams(in.Object("sampling_params"), request.mutable_params());
  ReadScores(in, &request);
  request.set_record_stability_info(in.BoolOr("record_stability_info", false));
  ReadUnsupportedOptions(in, &request);
  RETURN_IF_ERROR(errors.status());
  return request;
}

Json SampleFutureToJson(const v1::SampleSubmitResponse& response) {
  Json ids = Json::array();
  for (const std::string& id : response.sample_sequence_ids()) ids.push_back(id);
  return {{"request_id", response.request_id()}, {"sample_sequence_ids", std::move(ids)}};
}

}  // namespace lathe::gateway
