// Models: JSON <-> lathe.v1.
#pragma once

#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// An absent lora_config stays unset.
extern const BodyFields<v1::CreateModelRequest> kCreateModel;
extern const BodyFields<v1::UnloadModelRequest> kUnloadModel;
extern const BodyFields<v1::GetModelRequest> kGetInfo;

Json GetInfoToJson(const v1::GetModelResponse& response);

// Returns {"request_id": "…"}, the response to every submission.
Json FutureToJson(const v1::SubmitResponse& response);

}  // namespace lathe::gateway
