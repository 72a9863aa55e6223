#include "services/api-gateway/http/sdk_version.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {

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
