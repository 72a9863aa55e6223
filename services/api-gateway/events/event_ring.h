// The newest events of one feed, for viewers that have not sent them yet.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "services/api-gateway/json/events_json.h"

namespace lathe::gateway {

// Text of one event, which all viewers share.
using EventText = std::shared_ptr<const std::string>;

struct NumberedEvent {
  int64_t number = 0;
  EventTopic topic = EventTopic::kMetrics;
  EventText text;
  absl::Time at;  // monotonic
};

// Bounded in number, bytes and time. A viewer is only a place in it, so a slow one costs no memory:
// once what it lacks is forgotten, it has to read everything again. Not thread-safe.
class EventRing {
 public:
  static constexpr size_t kMaxEvents = 1000;
  static constexpr size_t kMaxBytes = 512 << 10;
  static constexpr absl::Duration kMaxAge = absl::Seconds(60);

  // `number`: that of the last event before the feed began.
  explicit EventRing(int64_t number) : forgotten_through_(number) {}

  // Numbers grow.
  void Add(NumberedEvent event);
  // Forgets events that are older than `max_age`.
  void Age(absl::Time now, absl::Duration max_age = kMaxAge);
  size_t num_bytes() const { return num_bytes_; }
  // Returns true if no event after `number` is forgotten.
  bool HasAllAfter(int64_t number) const { return number >= forgotten_through_; }
  // Returns the first event after `number`; null: there is none.
  const NumberedEvent* After(int64_t number) const;

 private:
  void ForgetOldest();

  std::deque<NumberedEvent> events_;
  size_t num_bytes_ = 0;
  int64_t forgotten_through_ = 0;
};

}  // namespace lathe::gateway
