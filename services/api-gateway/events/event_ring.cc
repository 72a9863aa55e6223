#include "services/api-gateway/events/event_ring.h"

#include <algorithm>
#include <utility>

namespace lathe::gateway {

void EventRing::Add(NumberedEvent event) {
  num_bytes_ += event.text->size();
  events_.push_back(std::move(event));
  // The newest event stays, whatever its size.
  while (events_.size() > kMaxEvents || (num_bytes_ > kMaxBytes && events_.size() > 1)) {
    ForgetOldest();
  }
}

void EventRing::Age(absl::Time now, absl::Duration max_age) {
  while (!events_.empty() && now - events_.front().at > max_age) ForgetOldest();
}

void EventRing::ForgetOldest() {
  forgotten_through_ = events_.front().number;
  num_bytes_ -= events_.front().text->size();
  events_.pop_front();
}

const NumberedEvent* EventRing::After(int64_t number) const {
  const auto found = std::ranges::upper_bound(events_, number, {}, &NumberedEvent::number);
  return found == events_.end() ? nullptr : &*found;
}

}  // namespace lathe::gateway
