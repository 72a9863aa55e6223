// Parses the Range header of RFC 9110, section 14, for one range of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe::gateway {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive; equal to begin if the range lies outside the resource
};

// Parses the Range header `range` for a resource of `num_bytes`. Returns nullopt if the whole
// resource is to be sent: no range, several ranges, another unit or a malformed header.
std::optional<ByteRange> ParseByteRange(std::string_view range, int64_t num_bytes);

}  // namespace lathe::gateway
