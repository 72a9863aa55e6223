// The header Range of RFC 9110, section 14, for one range of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe::gateway {

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive; equal to begin: nothing of the resource is in the range
};

// Of a resource of `num_bytes`. Unset when the whole is to be sent: no range, several, another unit
// or a malformed one.
std::optional<ByteRange> ParseByteRange(std::string_view range, int64_t num_bytes);

}  // namespace lathe::gateway
