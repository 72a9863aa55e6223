// optim_step and checkpoints of a model: JSON <-> lathe.v1.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Members absent from adam_params, except learning_rate, get the SDK's defaults.
absl::StatusOr<v1::OptimStepRequest> OptimStepFromJson(const Json& body);

absl::StatusOr<v1::SaveWeightsRequest> SaveWeightsFromJson(const Json& body);
// Reads both forms: with a name, or with the number of the sampling session to create.
absl::StatusOr<v1::SaveWeightsForSamplerRequest> SaveWeightsForSamplerFromJson(const Json& body);
absl::StatusOr<v1::SaveWeightsExternalRequest> SaveWeightsExternalFromJson(const Json& body);
// Reads both forms: a copy into a project, or a copy as a model of a session.
absl::StatusOr<v1::CopyWeightsRequest> CopyWeightsFromJson(const Json& body);
Json CopyWeightsToJson(const v1::CopyWeightsResponse& response);
// Reads both forms: onto an existing model, or creating a model.
absl::StatusOr<v1::LoadWeightsRequest> LoadWeightsFromJson(const Json& body);

absl::StatusOr<v1::GetWeightsInfoRequest> WeightsInfoFromJson(const Json& body);
Json WeightsInfoToJson(const v1::GetWeightsInfoResponse& response);

// Reads {"ttl_seconds": n} or {"ttl_seconds": null}. The member is required.
absl::StatusOr<v1::SetCheckpointTtlRequest> SetTtlFromJson(const Json& body,
                                                           const std::string& tinker_path);

}  // namespace lathe::gateway
