#include "services/worker/executor/rank_agreement.h"

#include <ATen/ATen.h>

#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"

namespace lathe::worker {

absl::Status AgreeOn(const absl::Status& own, const RankGroup& all) {
  if (all.is_alone()) return own;
  if (!own.ok()) LogWarn("this rank failed", {{"rank", all.rank()}, {"error", own.message()}});
  const at::Tensor codes =
      all.Gather("outcome", at::full({}, static_cast<int64_t>(own.code()), at::kLong));
  if (!own.ok()) return own;
  for (int rank = 0; rank < all.world(); ++rank) {
    const auto code = static_cast<absl::StatusCode>(codes[rank].item<int64_t>());
    if (code == absl::StatusCode::kOk) continue;
    return absl::Status(code, absl::StrFormat("rank %d failed, its log says why", rank));
  }
  return absl::OkStatus();
}

}  // namespace lathe::worker
