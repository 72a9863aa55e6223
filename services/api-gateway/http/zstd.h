// Decompresses request bodies within limits. No other code uses libzstd.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::gateway {

// Returns the content of `compressed`, which must be exactly one zstd frame. Checks the limits
// during decompression, before the memory is used. Error words:
//   decompressed_too_large  more than `max_bytes`, or more than 32 MiB at over 1,000 : 1
//   zstd_window             a window over 8 MiB (RFC 9659)
//   bad_compression         not zstd, damaged, truncated, a dictionary frame, or trailing bytes;
//                           the message has the offset in the compressed body
absl::StatusOr<std::string> InflateZstd(std::string_view compressed, int64_t max_bytes);

}  // namespace lathe::gateway
