// Cookies of requests and answers (RFC 6265).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns the value of the cookie `name`. Returns nullopt if there is none, or more than one: a
// page of a neighbouring host may set a second one, and nothing tells which is ours.
std::optional<std::string> CookieValue(const Request& request, std::string_view name);

struct Cookie {
  std::string name;
  // Neither this nor the name may have spaces, semicolons, commas, quotes or control characters.
  std::string value;
  absl::Duration max_age;  // zero: the browser forgets the cookie
  bool is_secure = true;
};

// Returns the header Set-Cookie of a cookie for this host alone, which scripts cannot read and
// other sites' pages cannot send along with a change.
Header SetCookie(const Cookie& cookie);

}  // namespace lathe::gateway
