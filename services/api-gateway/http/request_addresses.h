// Addresses that routes make from a request: the server's own, and a checkpoint's.
#pragma once

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns scheme, host and port under which the client reached the server: `configured`, or the
// Host header if that is empty. InvalidArgument if the header is needed and missing or malformed.
inline absl::StatusOr<std::string> PublicUrl(const Request& request,
                                             const std::string& configured) {
  if (!configured.empty()) return configured;
  const std::string host(request.HeaderValue("host"));
  const bool is_clean = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']';
  });
  if (is_clean) return (request.is_tls ? "https://" : "http://") + host;
  return WithDetail(absl::InvalidArgumentError("the Host header is missing or malformed"),
                    "malformed_http", "host");
}

// Returns tinker://{run}/{kind}/{name} for a route whose first three parameters are these.
inline std::string CheckpointPath(const Request& request) {
  return absl::StrCat("tinker://", request.path_parameters[0], "/", request.path_parameters[1], "/",
                      request.path_parameters[2]);
}

}  // namespace lathe::gateway
