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
constexpr int64_t kFirstPieceBytes = 1 << 20;

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

// How large the output buffer shall become; a declared content size is only a hint.
int64_t NextCapacity(int64_t size, std::string_view compressed, int64_t max_bytes) {
  if (size > 0) return std::min(size * 2, max_bytes + 1);
  const unsigned long long declared =
      ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  const int64_t wanted = declared < static_cast<unsigned long long>(8 * kFirstPieceBytes)
                             ? static_cast<int64_t>(declared) + 1
                             : kFirstPieceBytes;
  return std::min(wanted, max_bytes + 1);
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
  size_t num_bytes = 0;
  size_t remaining = 1;  // zstd's hint; 0 at the end of the frame
  while (remaining != 0) {
    if (num_bytes == output.size()) {
      output.resize(NextCapacity(static_cast<int64_t>(num_bytes), compressed, max_bytes));
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
