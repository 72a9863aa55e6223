// Where clients find this server.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Scheme, host and port under which the client reached us: `configured` unless it is empty.
// InvalidArgument when neither that nor the Host header says.
absl::StatusOr<std::string> PublicUrl(const Request& request, const std::string& configured);

}  // namespace lathe::gateway
