#include "services/api-gateway/http/origin.h"

#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/http/limits.h"

namespace lathe::gateway {
namespace {

// Returns "a.example:8080" for "https://a.example:8080", or "" if there is no scheme, as in "null".
std::string_view AuthorityOf(std::string_view origin) {
  const size_t scheme_end = origin.find("://");
  return scheme_end == origin.npos ? std::string_view() : origin.substr(scheme_end + 3);
}

}  // namespace

absl::Status CheckOrigin(const Request& request) {
  const std::string_view origin = request.HeaderValue("origin");
  if (origin.empty()) return absl::OkStatus();
  const std::string_view authority = AuthorityOf(origin);
  const std::string_view host = request.HeaderValue("host");
  if (!authority.empty() && absl::EqualsIgnoreCase(AbslView(authority), AbslView(host))) {
    return absl::OkStatus();
  }
  return WithDetail(absl::PermissionDeniedError(absl::StrFormat(
                        "Origin is '%s', only pages of this server may call it",
                        absl::CHexEscape(AbslView(origin.substr(0, kMaxQuotedBytes))))),
                    "bad_origin", "Origin");
}

}  // namespace lathe::gateway
