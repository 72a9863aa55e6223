// The thread team for CPU computation, and the distribution of rows over its threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "libs/common/concurrency/thread_team.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns the calling thread's own team of at::get_num_threads() threads. The team lives until the
// thread ends or that number changes.
inline ThreadTeam& ComputeTeam() {
  // A thread-local, not a parameter of every layer: results do not depend on the threads.
  thread_local std::unique_ptr<ThreadTeam> team;
  const int64_t num_threads = at::get_num_threads();
  if (team == nullptr || team->num_threads() != num_threads) {
    team.reset();
    team = std::make_unique<ThreadTeam>(num_threads);
  }
  return *team;
}

// Returns true if the kernels can read x: fp32 on a CPU, the numbers of a row contiguous.
inline bool HasCpuRows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.stride(-1) == 1;
}

// Number of tasks per thread that balances uneven tasks, also if other processes share a core.
inline constexpr int64_t kTasksPerThread = 4;

// Calls run(begin, end) for parts of [0, num_items). Each part but the last has at least `grain`
// items; fewer do not pay for another thread. A task of a team does not start a team of its own.
template <typename F>
void ForParts(int64_t num_items, int64_t grain, const F& run) {
  if (num_items <= grain || ThreadTeam::IsInTask()) {
    if (num_items > 0) run(int64_t{0}, num_items);
    return;
  }
  ThreadTeam& team = ComputeTeam();
  const int64_t most_parts = kTasksPerThread * team.num_threads();
  const int64_t size = std::max(grain, (num_items + most_parts - 1) / most_parts);
  team.Run((num_items + size - 1) / size, [&](int64_t part, int64_t /*thread*/) {
    run(part * size, std::min(num_items, (part + 1) * size));
  });
}

// Like ForParts, for rows of `width` numbers.
template <typename F>
void ForRows(int64_t num_rows, int64_t width, const F& run) {
  constexpr int64_t kGrainNumbers = 65536;
  ForParts(num_rows, std::max<int64_t>(1, kGrainNumbers / width), run);
}

// Copies `from` to `to` [T, n], on any device. On a CPU it avoids at::, which has its own thread
// pool.
inline void CopyRows(const at::Tensor& from, at::Tensor to) {
  if (!HasCpuRows(from) || !HasCpuRows(to)) {
    to.copy_(from);
    return;
  }
  const auto* const x = from.const_data_ptr<float>();
  auto* const y = to.mutable_data_ptr<float>();
  ForRows(to.size(0), to.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(x + row * from.stride(0), to.size(1), y + row * to.stride(0));
    }
  });
}

// Calls run(i) for each of `num_tasks` tasks in no fixed order. `num_multiply_adds` is the cost of
// all tasks together and decides whether other threads take part.
template <typename F>
void ForTasks(int64_t num_tasks, int64_t num_multiply_adds, const F& run) {
  constexpr int64_t kGrainMultiplyAdds = 1 << 19;
  if (num_multiply_adds <= kGrainMultiplyAdds || num_tasks < 2) {
    for (int64_t i = 0; i < num_tasks; ++i) run(i);
    return;
  }
  ComputeTeam().Run(num_tasks, [&](int64_t task, int64_t /*thread*/) { run(task); });
}

}  // namespace lathe::worker
