#include "services/engine/core_watch.h"

#include <utility>

namespace lathe::engine {
namespace {

constexpr int kLooksPerLimit = 10;

}  // namespace

CoreWatch::CoreWatch(absl::Duration limit, std::function<absl::Duration()> idle_time,
                     std::function<void()> on_stuck)
    : limit_(limit), idle_time_(std::move(idle_time)), on_stuck_(std::move(on_stuck)) {}

absl::Duration CoreWatch::Period() const { return limit_ / kLooksPerLimit; }

void CoreWatch::Look() {
  num_idle_looks_ = idle_time_() < Period() ? 0 : num_idle_looks_ + 1;
  if (num_idle_looks_ >= kLooksPerLimit && idle_time_() >= limit_) on_stuck_();
}

}  // namespace lathe::engine
