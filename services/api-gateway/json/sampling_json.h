// Sampling: JSON <-> lathe.v1.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

extern const BodyFields<v1::CreateSamplingSessionRequest> kCreateSamplingSession;
extern const BodyFields<v1::JoinSamplingSessionRequest> kJoinSamplingSession;
extern const BodyFields<v1::CancelSampleRequest> kCancelFuture;
// Chunk kinds and options that the engine does not offer are passed on by name, so that the engine
// refuses them.
extern const BodyFields<v1::SampleRequest> kSample;

Json CreateSamplingSessionToJson(const v1::CreateSamplingSessionResponse& response);
Json JoinSamplingSessionToJson(const v1::JoinSamplingSessionResponse& response);
Json GetSamplerToJson(const v1::GetSamplerResponse& response);

// Reads the body of asample, which may be large.
absl::StatusOr<v1::SampleRequest> SampleFromJson(const std::string& body);
// Returns {"request_id", "sample_sequence_ids"}.
Json SampleFutureToJson(const v1::SampleSubmitResponse& response);

// Appends the chunks of `list`, [{"type": "encoded_text", "tokens": […]}, …], to `chunks`.
void ReadChunks(simdjson::dom::array list, const std::string& pointer, LargeContext& errors,
                google::protobuf::RepeatedPtrField<v1::Chunk>* chunks);

}  // namespace lathe::gateway
