// Request headers with a meaning of their own: Origin, Range and the version of the SDK.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns PermissionDenied `bad_origin` if a page of another origin makes the request: the
// authority of its Origin header differs from its Host header. The check applies to every method,
// including reads. Programs other than browsers send no Origin, and their requests pass.
absl::Status CheckOrigin(const Request& request);

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive; equal to begin if the range lies outside the resource
};

// Parses the Range header `range` for a resource of `num_bytes`. Returns nullopt if the whole
// resource is to be sent: no range, several ranges, another unit or a malformed header.
std::optional<ByteRange> ParseByteRange(std::string_view range, int64_t num_bytes);

// Major, minor and patch numbers. The array's order is the order of versions.
using SdkVersion = std::array<int, 3>;

// Parses "0.38.0", "0.38" or "0.38.0rc1". Returns nullopt if `text` is not a version.
std::optional<SdkVersion> ParseSdkVersion(std::string_view text);

// Returns the version in the header X-Stainless-Package-Version. Returns nullopt if the client is
// not the SDK or does not send its version.
std::optional<SdkVersion> SdkVersionOf(const Request& request);

}  // namespace lathe::gateway
