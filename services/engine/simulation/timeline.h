// Virtual time: what happens next, without a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lathe::engine::simulation {

// Runs what was planned in order of its time; what is planned for one instant runs in the order in
// which it was planned. Nanoseconds.
class Timeline {
 public:
  int64_t now() const { return now_; }
  bool empty() const { return heap_.empty(); }

  void After(int64_t delay, std::function<void()> what);
  // Runs the earliest. False: nothing is planned up to `until`; then it is `until`.
  bool RunNext(int64_t until);

 private:
  struct Entry {
    int64_t at = 0;
    uint64_t order = 0;
    std::function<void()> what;
  };
  // For a heap with the earliest on top.
  static bool IsLater(const Entry& a, const Entry& b) {
    return std::pair(a.at, a.order) > std::pair(b.at, b.order);
  }

  int64_t now_ = 0;
  uint64_t last_order_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace lathe::engine::simulation
