#include "services/api-gateway/http/zstd.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

constexpr int kMaxWindowLog = 23;
constexpr int64_t kFreeRatioBytes = 32 << 20;
constexpr int64_t kMaxRatio = 1000;
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

absl::Status TooLarge(int64_t max_bytes) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat(
          "body inflates beyond the limit of %d bytes or %d times its size", max_bytes, kMaxRatio)),
      "decompressed_too_large");
}

absl::Status FromZstd(size_t code, size_t offset) {
  if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
    return WithDetail(absl::InvalidArgumentError("zstd window is over the limit of 8 MiB"),
                      "zstd_window");
  }
  return BadCompression(offset, ZSTD_getErrorName(code));
}

// Returns the content size that the frame declares, bounded by the limits, or 0 if it declares
// none. It serves to reserve the output: if it is true, the output is never reallocated. If it is
// false, the reserved memory stays untouched.
int64_t DeclaredBytes(std::string_view compressed, int64_t max_bytes) {
  const unsigned long long declared =
      ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (declared == ZSTD_CONTENTSIZE_UNKNOWN || declared == ZSTD_CONTENTSIZE_ERROR) return 0;
  const int64_t most = std::max<int64_t>(kFreeRatioBytes, compressed.size() * kMaxRatio);
  return static_cast<int64_t>(std::min<unsigned long long>(declared, std::min(most, max_bytes)));
}

// Returns the next size of the output when all its `size` bytes are full.
int64_t NextSize(int64_t size, const std::string& output, int64_t max_bytes) {
  const auto capacity = static_cast<int64_t>(output.capacity());
  if (size < capacity) return std::min(capacity, size + kPieceBytes);
  return std::min(std::max(size * 2, kPieceBytes), max_bytes + 1);
}

bool IsTooLarge(int64_t num_bytes, int64_t compressed_bytes, int64_t max_bytes) {
  return num_bytes > max_bytes ||
         (num_bytes > kFreeRatioBytes && num_bytes > compressed_bytes * kMaxRatio);
}

}  // namespace

absl::StatusOr<std::string> InflateZstd(std::string_view compressed, int64_t max_bytes) {
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  ZSTD_inBuffer input{compressed.data(), compressed.size(), 0};
  std::string output;
  output.reserve(DeclaredBytes(compressed, max_bytes) + kPaddingBytes);
  size_t num_bytes = 0;
  size_t remaining = 1;  // zstd's hint; 0 at the end of the frame
  while (remaining != 0) {
    if (num_bytes == output.size()) {
      output.resize(NextSize(static_cast<int64_t>(num_bytes), output, max_bytes));
    }
    ZSTD_outBuffer piece{output.data(), output.size(), num_bytes};
    remaining = ZSTD_decompressStream(context.get(), &piece, &input);
    if (ZSTD_isError(remaining)) return FromZstd(remaining, input.pos);
    const bool has_room = piece.pos < piece.size;
    num_bytes = piece.pos;
    if (IsTooLarge(num_bytes, compressed.size(), max_bytes)) return TooLarge(max_bytes);
    if (remaining != 0 && has_room && input.pos == input.size) {
      return BadCompression(input.pos, "the frame is truncated");
    }
  }
  if (input.pos != input.size) return BadCompression(input.pos, "trailing bytes after the frame");
  output.resize(num_bytes);
  return output;
}

}  // namespace lathe::gateway
