// Refuses requests that pages of other sites make in a browser.
#pragma once

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns PermissionDenied `bad_origin` if a page of another origin makes the request: the
// authority of its Origin header differs from its Host header. The check applies to every method,
// including reads. Programs other than browsers send no Origin, and their requests pass.
absl::Status CheckOrigin(const Request& request);

}  // namespace lathe::gateway
