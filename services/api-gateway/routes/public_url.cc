#include "services/api-gateway/routes/public_url.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "libs/common/errors.h"

namespace lathe::gateway {

absl::StatusOr<std::string> PublicUrl(const Request& request, const std::string& configured) {
  if (!configured.empty()) return configured;
  const std::string host(request.HeaderValue("host"));
  const bool is_clean = !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']';
  });
  if (is_clean) return (request.is_tls ? "https://" : "http://") + host;
  return WithDetail(absl::InvalidArgumentError("the Host header is missing or malformed"),
                    "malformed_http", "host");
}

}  // namespace lathe::gateway
