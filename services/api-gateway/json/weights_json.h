// optim_step and checkpoints of a model: JSON <-> lathe.v1.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// Gaps in adam_params are filled with the SDK's defaults.
absl::StatusOr<v1::OptimStepRequest> OptimStepFromJson(const Json& body);

absl::StatusOr<v1::SaveWeightsRequest> SaveWeightsFromJson(const Json& body);
// Both forms: with a name, or with the number of the sampling session it creates.
absl::StatusOr<v1::SaveWeightsForSamplerRequest> SaveWeightsForSamplerFromJson(const Json& body);
absl::StatusOr<v1::SaveWeightsExternalRequest> SaveWeightsExternalFromJson(const Json& body);
// Both forms: into a project, or as a model of a session.
absl::StatusOr<v1::CopyWeightsRequest> CopyWeightsFromJson(const Json& body);
Json CopyWeightsToJson(const v1::CopyWeightsResponse& response);
// Both forms: on a model, or creating one.
absl::StatusOr<v1::LoadWeightsRequest> LoadWeightsFromJson(const Json& body);

absl::StatusOr<v1::GetWeightsInfoRequest> WeightsInfoFromJson(const Json& body);
Json WeightsInfoToJson(const v1::GetWeightsInfoResponse& response);

// Body {"ttl_seconds": n} or {"ttl_seconds": null}; the member must be there.
absl::StatusOr<v1::SetCheckpointTtlRequest> SetTtlFromJson(const Json& body,
                                                           const std::string& tinker_path);

}  // namespace lathe::gateway
