#include "services/engine/runtime/queue_description.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lathe::engine {
namespace {

std::string WaitReason(const QueuePlace& place) {
  if (place.is_running) return "with a worker";
  if (place.missing_seq > 0) {
    return absl::StrFormat("waiting for seq %d, which has not arrived; without it in %d s",
                           place.missing_seq, (place.gap_closes_in + 999'999'999) / 1'000'000'000);
  }
  if (place.after_seq > 0) {
    return absl::StrCat("waiting for ", std::string(TraitsOf(place.after_kind).name), " seq ",
                        place.after_seq, " of its model");
  }
  return "waiting for its turn";
}

std::string Before(const QueuePlace& place) {
  if (place.requests_before == 0) return "";
  const bool is_one = place.requests_before == 1;
  std::string text = absl::StrCat("; ", place.requests_before, is_one ? " request" : " requests");
  if (place.tokens_before > 0) {
    absl::StrAppend(&text, " with ", place.tokens_before,
                    place.tokens_before == 1 ? " token" : " tokens");
  }
  return text + (is_one ? " is before it" : " are before it");
}

}  // namespace

QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place) {
  QueueStatus status = group;
  if (!place) return status;
  const bool is_held_up = !place->model_reason.empty() && !place->is_running;
  if (is_held_up) {
    absl::StrAppend(&status.reason, status.paused ? "; " : "", place->model_reason);
    status.paused = true;
  } else if (!status.paused && place->is_model_away) {
    status.paused = true;
    status.reason = "its model is being recovered onto a worker";
  } else if (!status.paused) {
    status.reason = WaitReason(*place);
  }
  if (status.paused || !place->is_running) status.reason += Before(*place);
  if (!status.paused && place->missing_seq == 0 && place->seconds > 0) {
    absl::StrAppend(&status.reason, "; about ", std::lround(place->seconds), " s");
  }
  return status;
}

}  // namespace lathe::engine
