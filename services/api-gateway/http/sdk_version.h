// Which SDK a request comes from.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Major, minor, patch; compares as versions do.
using SdkVersion = std::array<int, 3>;

// "0.38.0", also "0.38" and "0.38.0rc1". Unset: not a version.
std::optional<SdkVersion> ParseSdkVersion(std::string_view text);

// Of the header X-Stainless-Package-Version; unset: not an SDK, or one that hides it.
std::optional<SdkVersion> SdkVersionOf(const Request& request);

}  // namespace lathe::gateway
