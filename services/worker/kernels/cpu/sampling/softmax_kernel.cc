#include "services/worker/kernels/cpu/sampling/softmax_kernel.h"

#include "services/worker/kernels/cpu/sampling/exp_sum.h"
#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

LATHE_SIMD_CLONES
void SoftmaxStatsRows(const SoftmaxStatsTask& task, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = task.logits + row * task.width;
    task.max[row] = MaxOfRange(x, task.width);
    task.sum[row] = ExpSum<false>(x, task.width, task.max[row], /*factor=*/1.0f, nullptr);
  }
}

LATHE_SIMD_CLONES
void SoftmaxGradientRows(const SoftmaxGradientTask& task, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = task.logits + row * task.width;
    double total = 0;
    for (int64_t i = task.offsets[row]; i < task.offsets[row + 1]; ++i) total += task.slopes[i];
    const int64_t width = task.width;
    const float max = task.max[row];
    const auto factor = static_cast<float>(-total / task.sum[row]);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) x[i] = FastExp(x[i] - max) * factor;
    for (int64_t i = task.offsets[row]; i < task.offsets[row + 1]; ++i) {
      const int64_t column = task.tokens[i] - task.first_token;
      if (column >= 0 && column < width) x[column] += task.slopes[i];
    }
  }
}

}  // namespace lathe::worker
