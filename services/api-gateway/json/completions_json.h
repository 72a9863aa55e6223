// Ended samples: JSON <-> lathe.v1.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

extern const BodyFields<v1::AwaitSamplesRequest> kAwaitSamples;
// Reads the body of retrieve_futures (tinker-api 11.6). The wait is `timeout`, but at most `hold`.
// Without `timeout` it is `hold`.
absl::StatusOr<v1::AwaitSamplesRequest> AwaitSamplesFromJson(const std::string& body,
                                                             absl::Duration hold);
// Returns {"completions": […], "cursor"}.
Json AwaitSamplesToJson(const v1::AwaitSamplesResponse& response);

}  // namespace lathe::gateway
