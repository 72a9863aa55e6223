// Address at which clients reach this server.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns scheme, host and port under which the client reached the server: `configured`, or the
// Host header if that is empty. InvalidArgument if the header is needed and missing or malformed.
absl::StatusOr<std::string> PublicUrl(const Request& request, const std::string& configured);

}  // namespace lathe::gateway
