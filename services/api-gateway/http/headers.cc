#include "services/api-gateway/http/headers.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
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

namespace {

// Accepts digits only, whereas SimpleAtoi also takes signs and spaces.
std::optional<int64_t> ReadPosition(absl::string_view text) {
  const bool is_number =
      !text.empty() &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  int64_t value = 0;
  if (!is_number || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ByteRange> ParseByteRange(std::string_view range, int64_t num_bytes) {
  absl::string_view rest = AbslView(range);
  if (!absl::ConsumePrefix(&rest, "bytes=")) return std::nullopt;
  const size_t dash = rest.find('-');
  if (dash == absl::string_view::npos) return std::nullopt;
  const absl::string_view first_text = rest.substr(0, dash);
  const absl::string_view last_text = rest.substr(dash + 1);
  const std::optional<int64_t> first = ReadPosition(first_text);
  const std::optional<int64_t> last = ReadPosition(last_text);
  if (first_text.empty() && last) {  // a suffix: the last `last` bytes
    return ByteRange{num_bytes - std::min(*last, num_bytes), num_bytes};
  }
  if (!first || (!last && !last_text.empty()) || (last && *last < *first)) return std::nullopt;
  if (*first >= num_bytes) return ByteRange{num_bytes, num_bytes};
  return ByteRange{*first, last ? std::min(*last, num_bytes - 1) + 1 : num_bytes};
}

std::optional<SdkVersion> ParseSdkVersion(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(AbslView(text), '.');
  SdkVersion version = {};
  if (parts.size() < 2) return std::nullopt;
  for (size_t i = 0; i < std::min(parts.size(), version.size()); ++i) {
    // The patch number may have a suffix, such as "rc1". The suffix is ignored.
    const std::string digits = parts[i].substr(0, parts[i].find_first_not_of("0123456789"));
    const bool is_whole = digits == parts[i] || i == 2;
    if (!is_whole || !absl::SimpleAtoi(digits, &version[i])) return std::nullopt;
  }
  return version;
}

std::optional<SdkVersion> SdkVersionOf(const Request& request) {
  return ParseSdkVersion(request.HeaderValue("x-stainless-package-version"));
}

}  // namespace lathe::gateway
