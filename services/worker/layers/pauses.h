// Yield points in long computations, so that other work can use the device in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace lathe::worker {

// While a scope lives, this thread's long computations run in pieces and call `on_pause` after each
// piece. A piece takes some hundredths of a second on a CPU. `on_pause` itself runs without yield
// points.
class PauseScope {
 public:
  explicit PauseScope(std::function<void()> on_pause);
  ~PauseScope();
  PauseScope(const PauseScope&) = delete;
  PauseScope& operator=(const PauseScope&) = delete;

 private:
  const std::function<void()> on_pause_;
  const std::function<void()>* const outer_;
};

// Returns true if a PauseScope lives on this thread.
bool HasPauses();
// Calls the innermost scope's on_pause.
void Pause();

// Calls run(begin, end) over [0, num_items): in one piece, or, if a PauseScope lives, in pieces of
// about kBiteProducts multiply-adds. `num_products` is the cost of all items together. The size of
// a piece is a multiple of `grain` items.
inline constexpr int64_t kBiteProducts = int64_t{1} << 31;

template <typename F>
void RunInBites(int64_t num_items, int64_t num_products, int64_t grain, const F& run) {
  const int64_t num_bites = num_products / kBiteProducts;
  if (num_bites <= 1 || !HasPauses()) return run(int64_t{0}, num_items);
  const int64_t size = std::max<int64_t>(1, num_items / (num_bites * grain)) * grain;
  for (int64_t begin = 0; begin < num_items; begin += size) {
    run(begin, std::min(begin + size, num_items));
    Pause();
  }
}

}  // namespace lathe::worker
