#include "services/api-gateway/auth/session_cookies.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/http/cookies.h"

namespace lathe::gateway {
namespace {

constexpr std::string_view kSession = "session";
constexpr std::string_view kLogin = "login";

// Returns the digits behind the last colon of the Host header; empty: none.
std::string PortOf(const Request& request) {
  const std::string_view host = request.HeaderValue("host");
  const size_t colon = host.rfind(':');
  if (colon == host.npos) return "";
  std::string port;
  for (const char c : host.substr(colon + 1)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return "";
    port += c;
  }
  return port;
}

}  // namespace

std::string SessionCookies::NameOf(const Request& request, std::string_view purpose) const {
  const absl::string_view name = AbslView(purpose);
  if (IsSecure(request)) return absl::StrCat("__Host-lathe_", name);
  const std::string port = PortOf(request);
  return absl::StrCat("lathe_", name, port.empty() ? "" : "_", port);
}

std::string SessionCookies::FindSession(const Request& request) const {
  const std::optional<std::string> value = CookieValue(request, NameOf(request, kSession));
  return value && IsUserSession(*value) ? *value : "";
}

Header SessionCookies::SetSession(const Request& request, const std::string& session,
                                  absl::Duration lifetime) const {
  return SetCookie({.name = NameOf(request, kSession),
                    .value = session,
                    .max_age = lifetime,
                    .is_secure = IsSecure(request)});
}

Header SessionCookies::ClearSession(const Request& request) const {
  return SetSession(request, "", absl::ZeroDuration());
}

std::optional<std::string> SessionCookies::FindLogin(const Request& request) const {
  return CookieValue(request, NameOf(request, kLogin));
}

Header SessionCookies::SetLogin(const Request& request, const std::string& sealed,
                                absl::Duration lifetime) const {
  return SetCookie({.name = NameOf(request, kLogin),
                    .value = sealed,
                    .max_age = lifetime,
                    .is_secure = IsSecure(request)});
}

Header SessionCookies::ClearLogin(const Request& request) const {
  return SetLogin(request, "", absl::ZeroDuration());
}

std::string CsrfToken(const std::string& session) {
  return absl::BytesToHexString(AbslView(HmacSha256(session, "lathe csrf token")));
}

absl::Status CheckCsrf(const Request& request, const std::string& session) {
  const std::string_view site = request.HeaderValue("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") {
    return WithDetail(absl::PermissionDeniedError("a page of another site made the request"),
                      "bad_origin", "sec-fetch-site");
  }
  if (EqualInConstantTime(request.HeaderValue(kCsrfHeader), CsrfToken(session))) {
    return absl::OkStatus();
  }
  return WithDetail(absl::PermissionDeniedError(absl::StrCat(
                        "the header ", kCsrfHeader, " is not the csrf_token of /ui/api/v1/me")),
                    "bad_csrf", kCsrfHeader);
}

}  // namespace lathe::gateway
