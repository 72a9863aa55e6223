// How layers hand rows to the CPU kernels.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace lathe::worker {

// Whether the kernels understand x: fp32 on a CPU, numbers of a row side by side.
inline bool HasCpuRows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.stride(-1) == 1;
}

// Tasks for each thread from which uneven ones level out, also where others share a core.
inline constexpr int64_t kTasksPerThread = 4;

// run(begin, end) over parts of `num_rows` rows of `width` numbers; small ones stay on this thread.
template <typename F>
void ForRows(int64_t num_rows, int64_t width, const F& run) {
  constexpr int64_t kGrainNumbers = 65536;  // fewer are not worth another thread
  if (num_rows * width <= kGrainNumbers) {
    run(int64_t{0}, num_rows);
  } else {
    at::parallel_for(0, num_rows, std::max<int64_t>(1, kGrainNumbers / width), run);
  }
}

// run(i) for each of `num_tasks`, in whatever order threads come to them; `num_multiply_adds` of
// all together decide whether other threads are asked at all.
template <typename F>
void ForTasks(int64_t num_tasks, int64_t num_multiply_adds, const F& run) {
  constexpr int64_t kGrainMultiplyAdds = 1 << 19;
  if (num_multiply_adds <= kGrainMultiplyAdds || num_tasks < 2) {
    for (int64_t i = 0; i < num_tasks; ++i) run(i);
    return;
  }
  std::atomic<int64_t> next = 0;
  at::parallel_for(0, at::get_num_threads(), /*grain_size=*/1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < num_tasks; i = next++) run(i);
  });
}

}  // namespace lathe::worker
