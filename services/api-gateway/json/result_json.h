// Results of futures, one by one and for all ended samples: JSON <-> lathe.v1.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

// The body of retrieve_future.
extern const BodyFields<v1::GetResultRequest> kRetrieveFuture;

// Returns the result in the shape of its kind. An error becomes {"error",
// "category", "code"}, with "param" if it names a field. Metrics that are not finite are dropped;
// such numbers in lists become null.
Json ResultToJson(const v1::OperationResult& result);

// Returns {"type": "try_again", …}.
Json TryAgainToJson(const std::string& request_id, v1::QueueState state, const std::string& reason);

extern const BodyFields<v1::AwaitSamplesRequest> kAwaitSamples;
// Reads the body of retrieve_futures. The wait is `timeout`, but at most `hold`.
// Without `timeout` it is `hold`.
absl::StatusOr<v1::AwaitSamplesRequest> AwaitSamplesFromJson(const std::string& body,
                                                             absl::Duration hold);
// Returns {"completions": […], "cursor"}.
Json AwaitSamplesToJson(const v1::AwaitSamplesResponse& response);

}  // namespace lathe::gateway
