// Breaks in long work, so that somebody else gets the device in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace lathe::worker {

// While it lives, work that this thread does in bites calls `on_pause` between any two of them. A
// bite takes some hundredths of a second on a CPU. What on_pause does itself has no pauses.
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

// Whether a PauseScope lives on this thread.
bool HasPauses();
// Calls the innermost scope's on_pause.
void Pause();

// run(begin, end) over [0, num_items): at once, or in bites of about kBiteProducts multiply-adds if
// there are pauses. `num_products` is what all items cost together; a bite has a multiple of
// `grain` items.
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
