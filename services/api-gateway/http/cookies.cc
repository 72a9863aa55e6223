#include "services/api-gateway/http/cookies.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {

std::optional<std::string> CookieValue(const Request& request, std::string_view name) {
  std::optional<std::string> value;
  for (const Header& header : request.headers) {
    if (!absl::EqualsIgnoreCase(header.name, "cookie")) continue;
    for (const absl::string_view pair : absl::StrSplit(header.value, ';')) {
      const absl::string_view text = absl::StripAsciiWhitespace(pair);
      const size_t equals = text.find('=');
      if (equals == text.npos || text.substr(0, equals) != AbslView(name)) continue;
      if (value) return std::nullopt;
      value = std::string(text.substr(equals + 1));
    }
  }
  return value;
}

Header SetCookie(const Cookie& cookie) {
  return {"Set-Cookie",
          absl::StrCat(cookie.name, "=", cookie.value,
                       "; Path=/; Max-Age=", absl::ToInt64Seconds(cookie.max_age),
                       cookie.is_secure ? "; Secure" : "", "; HttpOnly; SameSite=Lax")};
}

}  // namespace lathe::gateway
