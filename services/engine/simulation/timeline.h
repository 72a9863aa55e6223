// Virtual time: a queue of planned events instead of a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lathe::engine::simulation {

// Runs planned events in order of time, and events of the same time in the order of planning. Times
// are nanoseconds.
class Timeline {
 public:
  int64_t now() const { return now_; }
  bool empty() const { return heap_.empty(); }

  void After(int64_t delay, std::function<void()> what);
  // Runs the earliest event. If none is planned up to `until`, advances to `until` and returns
  // false.
  bool RunNext(int64_t until);

 private:
  struct Entry {
    int64_t at = 0;
    uint64_t order = 0;
    std::function<void()> what;
  };
  // Order for a heap with the earliest event on top.
  static bool IsLater(const Entry& a, const Entry& b) {
    return std::pair(a.at, a.order) > std::pair(b.at, b.order);
  }

  int64_t now_ = 0;
  uint64_t last_order_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace lathe::engine::simulation
