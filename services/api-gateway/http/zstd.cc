#include "services/api-gateway/http/zstd.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr int kMaxWindowLog = 23;
constexpr int64_t kPieceBytes = 1 << 20;
// Spare capacity after the end, without which the parser of large JSON would copy the text.
constexpr int64_t kPaddingBytes = 64;

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

absl::Status BadCompression(size_t offset, std::string_view why) {
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "zstd body is damaged at byte %d: %s", offset, std::string(why))),
                    "bad_compression");
}

// Returns the most bytes that `limits` allow the content of a frame of `compressed_bytes`.
int64_t MostBytes(size_t compressed_bytes, const InflateLimits& limits) {
  const auto by_ratio = static_cast<int64_t>(compressed_bytes) * kMaxInflationRatio;
  return std::min(limits.max_bytes, std::max(limits.free_bytes, by_ratio));
}

absl::Status TooLarge(size_t compressed_bytes, const InflateLimits& limits) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat(
          "body of %d bytes inflates beyond the limit of %d bytes, or beyond %d times its size and "
          "%d bytes",
          compressed_bytes, limits.max_bytes, kMaxInflationRatio, limits.free_bytes)),
      kInflatedTooLarge);
}

absl::Status FromZstd(size_t code, size_t offset) {
  if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
    return WithDetail(absl::InvalidArgumentError("zstd window is over the limit of 8 MiB"),
                      "zstd_window");
  }
  // zstd is given the whole body and room for what its frame declares.
  if (ZSTD_getErrorCode(code) == ZSTD_error_dstSize_tooSmall) {
    return BadCompression(offset, "the content is longer than the frame declares");
  }
  return BadCompression(offset, ZSTD_getErrorName(code));
}

// Returns the next size of the output when all its `size` bytes are full.
int64_t NextSize(int64_t size, const std::string& output, int64_t max_bytes) {
  const auto capacity = static_cast<int64_t>(output.capacity());
  if (size < capacity) return std::min(capacity, size + kPieceBytes);
  return std::min(std::max(size * 2, kPieceBytes), max_bytes + 1);
}

}  // namespace

int64_t DeclaredBytes(std::string_view compressed) {
  const unsigned long long declared =
      ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (declared == ZSTD_CONTENTSIZE_UNKNOWN || declared == ZSTD_CONTENTSIZE_ERROR) return 0;
  constexpr unsigned long long kMost = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(declared, kMost));
}

absl::StatusOr<std::string> InflateZstd(std::string_view compressed, const InflateLimits& limits,
                                        ReserveBytes reserve) {
  const int64_t most = MostBytes(compressed.size(), limits);
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  ZSTD_inBuffer input{compressed.data(), compressed.size(), 0};
  std::string output;
  // If the declared size is true, the output is never reallocated. If it is false, the limits
  // bound the reserved memory, which stays untouched.
  const int64_t declared = DeclaredBytes(compressed);
  output.reserve(std::min(declared, most) + kPaddingBytes);
  size_t num_bytes = 0;
  size_t remaining = 1;  // zstd's hint; 0 at the end of the frame
  while (remaining != 0) {
    if (num_bytes == output.size()) {
      const int64_t next = NextSize(static_cast<int64_t>(num_bytes), output, most);
      RETURN_IF_ERROR(reserve(next));
      output.resize(next);
    }
    ZSTD_outBuffer piece{output.data(), output.size(), num_bytes};
    remaining = ZSTD_decompressStream(context.get(), &piece, &input);
    if (ZSTD_isError(remaining)) return FromZstd(remaining, input.pos);
    const bool has_room = piece.pos < piece.size;
    num_bytes = piece.pos;
    if (static_cast<int64_t>(num_bytes) > most) return TooLarge(compressed.size(), limits);
    if (remaining != 0 && has_room && input.pos == input.size) {
      return BadCompression(input.pos, "the frame is truncated");
    }
  }
  if (input.pos != input.size) return BadCompression(input.pos, "trailing bytes after the frame");
  output.resize(num_bytes);
  return output;
}

}  // namespace lathe::gateway
