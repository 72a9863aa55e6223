// optim_step and checkpoints of a model: JSON <-> lathe.v1.
#pragma once

#include "protos/lathe/v1/checkpoints.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

extern const BodyFields<v1::OptimStepRequest> kOptimStep;
extern const BodyFields<v1::SaveWeightsRequest> kSaveWeights;
extern const BodyFields<v1::SaveWeightsForSamplerRequest> kSaveWeightsForSampler;
extern const BodyFields<v1::SaveWeightsExternalRequest> kSaveWeightsExternal;
extern const BodyFields<v1::CopyWeightsRequest> kCopyWeights;
extern const BodyFields<v1::LoadWeightsRequest> kLoadWeights;
extern const BodyFields<v1::GetWeightsInfoRequest> kWeightsInfo;
extern const BodyFields<v1::SetCheckpointTtlRequest> kSetTtl;

Json CopyWeightsToJson(const v1::CopyWeightsResponse& response);
Json WeightsInfoToJson(const v1::GetWeightsInfoResponse& response);

}  // namespace lathe::gateway
