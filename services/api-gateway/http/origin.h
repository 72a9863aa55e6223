// Requests made by pages of other sites in a browser.
#pragma once

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// PermissionDenied `bad_origin` when a browser says that a page of another origin makes the
// request: the authority of `Origin` is not the one of `Host`. For every method, reads included.
// Programs send no Origin.
absl::Status CheckOrigin(const Request& request);

}  // namespace lathe::gateway
