// Models: JSON <-> lathe.v1.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// An absent lora_config stays unset. Members absent from it get the SDK's defaults (rank 32, all
// modules).
absl::StatusOr<v1::CreateModelRequest> CreateModelFromJson(const Json& body);

absl::StatusOr<v1::UnloadModelRequest> UnloadModelFromJson(const Json& body);

absl::StatusOr<v1::GetModelRequest> GetInfoFromJson(const Json& body);
Json GetInfoToJson(const v1::GetModelResponse& response);

// Returns {"request_id": "…"}, the response to every submission.
Json FutureToJson(const v1::SubmitResponse& response);

}  // namespace lathe::gateway
