// Distributes the tasks of CPU attention over threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "services/worker/kernels/cpu/attention/attention_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/yield_points.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the heads of x [T, H, D]. Callers write through the result only if `x` is an output.
inline HeadRows HeadRowsOf(const at::Tensor& x) {
  return {.data = const_cast<float*>(x.const_data_ptr<float>()),
          .row_stride = x.stride(0),
          .head_stride = x.stride(1)};
}

// A buffer of floats that starts at a cache line, so that a vector load never crosses two lines.
class Scratch {
 public:
  explicit Scratch(int64_t size)
      : data_(static_cast<float*>(
            ::operator new(static_cast<size_t>(size) * sizeof(float), kAlignment))) {}
  float* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<float, Delete> data_;
};

// Calls run(task, scratch) for tasks [0, num_tasks). Each thread takes the next task when it is
// free; costs differ, so the costly tasks should come first. `num_products` is the number of
// multiply-adds of one product q k^T in all tasks, and decides whether other threads take part.
// Each thread has its own scratch of `scratch_size` floats.
template <typename F>
void RunTasks(int64_t num_tasks, int64_t num_products, int64_t scratch_size, const F& run) {
  constexpr int64_t kGrainProducts = int64_t{1} << 16;  // fewer do not pay for another thread
  constexpr int64_t kMostProducts = 5;                  // matrix products: 2 forward, 5 backward
  const bool is_shared = num_tasks > 1 && num_products >= kGrainProducts;
  if (!is_shared) {
    const Scratch scratch(scratch_size);
    RunInPieces(num_tasks, kMostProducts * num_products, /*grain=*/1,
                [&](int64_t first, int64_t last) {
                  for (int64_t task = first; task < last; ++task) run(task, scratch.data());
                });
    return;
  }
  ThreadTeam& team = ComputeTeam();
  std::vector<std::unique_ptr<Scratch>> scratch(static_cast<size_t>(team.num_threads()));
  RunInPieces(num_tasks, kMostProducts * num_products, team.num_threads(),
              [&](int64_t first, int64_t last) {
                team.Run(last - first, [&](int64_t task, int64_t thread) {
                  std::unique_ptr<Scratch>& own = scratch[static_cast<size_t>(thread)];
                  if (own == nullptr) own = std::make_unique<Scratch>(scratch_size);
                  run(first + task, own->data());
                });
              });
}

}  // namespace lathe::worker
