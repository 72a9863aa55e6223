// Yield points in long computations, so that other work can use the device in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace lathe::worker {

// While a scope lives, this thread's long computations run in pieces and call `on_yield` after each
// piece. A piece takes some hundredths of a second on a CPU. `on_yield` itself runs without yield
// points.
class YieldScope {
 public:
  explicit YieldScope(std::function<void()> on_yield);
  ~YieldScope();
  YieldScope(const YieldScope&) = delete;
  YieldScope& operator=(const YieldScope&) = delete;

 private:
  const std::function<void()> on_yield_;
  const std::function<void()>* const outer_;
};

// Returns true if a YieldScope lives on this thread.
bool HasYieldPoints();
// Calls the innermost scope's on_yield.
void Yield();

// Number of multiply-adds in a piece, some hundredths of a second on a CPU.
inline constexpr int64_t kPieceProducts = int64_t{1} << 31;

// Calls run(begin, end) over [0, num_items): in one piece, or, if a YieldScope lives, in pieces of
// about kPieceProducts multiply-adds. `num_products` is the cost of all items together. The size of
// a piece is a multiple of `grain` items.
template <typename F>
void RunInPieces(int64_t num_items, int64_t num_products, int64_t grain, const F& run) {
  const int64_t num_pieces = num_products / kPieceProducts;
  if (num_pieces <= 1 || !HasYieldPoints()) return run(int64_t{0}, num_items);
  const int64_t size = std::max<int64_t>(1, num_items / (num_pieces * grain)) * grain;
  for (int64_t begin = 0; begin < num_items; begin += size) {
    run(begin, std::min(begin + size, num_items));
    Yield();
  }
}

}  // namespace lathe::worker
