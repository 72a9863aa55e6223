#include "services/engine/simulation/timeline.h"

#include <algorithm>

namespace lathe::engine::simulation {

void Timeline::After(int64_t delay, std::function<void()> what) {
  heap_.push_back({now_ + delay, ++last_order_, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
}

bool Timeline::RunNext(int64_t until) {
  if (heap_.empty() || heap_.front().at > until) {
    now_ = std::max(now_, until);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  const Entry next = std::move(heap_.back());
  heap_.pop_back();
  now_ = next.at;
  next.what();
  return true;
}

}  // namespace lathe::engine::simulation
