// forward and forward_backward as JSON, for plain HTTP users.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/engine.pb.h"

namespace lathe::gateway {

// Reads the body of forward_backward (`forward_only` false) or forward (true). After an error
// `request` still has model_id and seq_id if they could be read.
absl::Status ForwardBackwardFromJson(const std::string& body, bool forward_only,
                                     v1::ForwardBackwardRequest* request);

}  // namespace lathe::gateway
