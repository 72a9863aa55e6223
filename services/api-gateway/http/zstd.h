// Decompresses request bodies within limits. No other code uses libzstd.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/limits.h"

namespace lathe::gateway {

inline constexpr std::string_view kInflatedTooLarge = "decompressed_too_large";

struct InflateLimits {
  int64_t max_bytes = 0;
  // Size that the content may have at any ratio; beyond it, kMaxInflationRatio bounds the ratio.
  int64_t free_bytes = kFreeInflatedBytes;
};

// Called with the size that the output will grow to, before it does. An error ends the inflating.
using ReserveBytes = absl::FunctionRef<absl::Status(int64_t num_bytes)>;
inline absl::Status ReserveFreely(int64_t) { return absl::OkStatus(); }

// Returns the content size that the frame declares, or 0 if it declares none.
int64_t DeclaredBytes(std::string_view compressed);

// Returns the content of `compressed`, which must be exactly one zstd frame. Checks the limits
// during decompression, before the memory is used. Errors are those of `reserve` and these words:
//   decompressed_too_large  beyond `limits`
//   zstd_window             a window over 8 MiB (RFC 9659)
//   bad_compression         not zstd, damaged, truncated, a dictionary frame, or trailing bytes;
//                           the message has the offset in the compressed body
absl::StatusOr<std::string> InflateZstd(std::string_view compressed, const InflateLimits& limits,
                                        ReserveBytes reserve = ReserveFreely);

}  // namespace lathe::gateway
