#include "tests/bench/training/bare_adam.h"

#include <cmath>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

LATHE_SIMD_CLONES
void BareAdam(float* w, float* g, float* m, float* v, int64_t begin, int64_t end) {
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    m[i] = 0.9f * m[i] + 0.1f * g[i];
    v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
    w[i] -= 1e-4f * m[i] / (std::sqrt(v[i]) + 1e-12f);
    g[i] = 0.0f;
  }
}

}  // namespace lathe::worker
