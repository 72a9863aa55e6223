// Training runs and checkpoints as JSON.
#pragma once

#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

Json RunToJson(const v1::Run& run);
Json CheckpointToJson(const v1::Checkpoint& checkpoint);
Json ListRunsToJson(const v1::ListRunsResponse& response, int64_t limit, int64_t offset);
Json ListCheckpointsToJson(const v1::ListCheckpointsResponse& response, int64_t limit,
                           int64_t offset);

}  // namespace lathe::gateway
