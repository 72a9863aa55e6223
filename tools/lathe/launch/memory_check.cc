#include "tools/lathe/launch/memory_check.h"

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

constexpr double kWeightFactor = 1.1;
constexpr int64_t kProcessBytes = int64_t{512} << 20;
constexpr double kGib = 1 << 30;

}  // namespace

absl::Status CheckMemory(int64_t loaded_bytes, int64_t available_bytes) {
  const auto needed =
      static_cast<int64_t>(kWeightFactor * static_cast<double>(loaded_bytes)) + kProcessBytes;
  if (needed <= available_bytes) return absl::OkStatus();
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrFormat(
          "the model needs about %.1f GiB of memory (%.1f GiB of weights), %.1f GiB "
          "are available",
          static_cast<double>(needed) / kGib, static_cast<double>(loaded_bytes) / kGib,
          static_cast<double>(available_bytes) / kGib)),
      "too_little_memory", "model");
}

}  // namespace lathe::cli
