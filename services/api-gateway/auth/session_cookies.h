// The cookies of a browser that signs in, and the proof that its own page makes a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Header of requests that change something, with the value of CsrfToken.
inline constexpr char kCsrfHeader[] = "X-Lathe-CSRF";

// Names, writes and reads the cookies. With TLS a cookie has the prefix __Host-, so no other host
// can have set it. Without TLS its name has the port, because the services of one machine share
// their cookies. Immutable.
class SessionCookies {
 public:
  // `public_url` is the configured address of the service; empty: none.
  explicit SessionCookies(std::string_view public_url)
      : is_public_secure_(public_url.starts_with("https://")) {}

  // Returns the session; empty: none, or none that could be one.
  std::string FindSession(const Request& request) const;
  Header SetSession(const Request& request, const std::string& session,
                    absl::Duration lifetime) const;
  Header ClearSession(const Request& request) const;

  // The cookie that a browser keeps while its user is at the identity provider.
  std::optional<std::string> FindLogin(const Request& request) const;
  Header SetLogin(const Request& request, const std::string& sealed, absl::Duration lifetime) const;
  Header ClearLogin(const Request& request) const;

 private:
  bool IsSecure(const Request& request) const { return request.is_tls || is_public_secure_; }
  std::string NameOf(const Request& request, std::string_view purpose) const;

  const bool is_public_secure_;
};

// Returns the token that proves to know `session`, in 64 hex digits.
std::string CsrfToken(const std::string& session);

// Returns PermissionDenied if `request`, which may change something, was not made by the page of
// this service: "bad_origin" if the browser says so, and "bad_csrf" without the token of `session`.
absl::Status CheckCsrf(const Request& request, const std::string& session);

}  // namespace lathe::gateway
