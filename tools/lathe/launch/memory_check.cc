#include "tools/lathe/launch/memory_check.h"

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

constexpr double kWeightFactor = 1.1;
constexpr int64_t kProcessBytes = int64_t{512} << 20;
constexpr double kGib = 1 << 30;

}  // namespace

absl::Status CheckMemory(const MemoryNeed& need) {
  const auto needed =
      static_cast<int64_t>(kWeightFactor * static_cast<double>(need.loaded_bytes)) + kProcessBytes;
  const double share_bytes = need.share * static_cast<double>(need.available_bytes);
  if (static_cast<double>(needed) <= share_bytes) return absl::OkStatus();
  std::string message = absl::StrFormat(
      "the model needs about %.1f GiB of memory (%.1f GiB of weights), %.1f GiB are available",
      static_cast<double>(needed) / kGib, static_cast<double>(need.loaded_bytes) / kGib,
      share_bytes / kGib);
  if (need.share < 1) {
    absl::StrAppendFormat(&message, ": memory_share of %s is %.3g of %.1f GiB", need.model,
                          need.share, static_cast<double>(need.available_bytes) / kGib);
  }
  return WithDetail(absl::ResourceExhaustedError(message), "too_little_memory",
                    need.share < 1 ? "memory_share" : "model");
}

}  // namespace lathe::cli
