// Reads the version of the SDK that sent a request.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Major, minor and patch numbers. The array's order is the order of versions.
using SdkVersion = std::array<int, 3>;

// Parses "0.38.0", "0.38" or "0.38.0rc1". Returns nullopt if `text` is not a version.
std::optional<SdkVersion> ParseSdkVersion(std::string_view text);

// Returns the version in the header X-Stainless-Package-Version. Returns nullopt if the client is
// not the SDK or does not send its version.
std::optional<SdkVersion> SdkVersionOf(const Request& request);

}  // namespace lathe::gateway
