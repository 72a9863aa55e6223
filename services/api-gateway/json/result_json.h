// Results of futures as JSON.
#pragma once

#include <string>

#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// The result in the shape of its kind (tinker-api 11.1, 24). An error becomes {"error",
// "category"}. Numbers that are not finite are dropped from metrics and null in lists.
Json ResultToJson(const v1::OperationResult& result);

// {"type": "try_again", …}
Json TryAgainToJson(const std::string& request_id, v1::QueueState state, const std::string& reason);

}  // namespace lathe::gateway
