#include "services/worker/layers/base_linear.h"

#include <algorithm>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/yield_points.h"

namespace lathe::worker {
namespace {

// Largest number of panels in a task; bounds the wait for the last task of a wide product.
constexpr int64_t kMostTaskPanels = 32;

using Product = void (*)(const WeightMatmulTask&, MatmulArithmetic, int64_t, int64_t);

// Returns x [T, n] in bf16. Rows are padded with zero to an even length.
at::Tensor RoundRows(const at::Tensor& x) {
  const int64_t n = x.size(1);
  const int64_t padded = (n + 1) / 2 * 2;
  at::Tensor y = at::empty({x.size(0), padded}, x.options().dtype(at::kBFloat16));
  if (padded != n) y.select(1, n).zero_();
  const auto* from = x.const_data_ptr<float>();
  auto* to = reinterpret_cast<uint16_t*>(y.mutable_data_ptr<at::BFloat16>());
  ForRows(x.size(0), n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      RoundToBf16(from + row * x.stride(0), to + row * padded, n);
    }
  });
  return y;
}

// Computes y (+)= x w, or x w^T, by CPU kernels; `product` selects which.
void Multiply(const at::Tensor& x, const BaseWeight& w, MatmulArithmetic arithmetic,
              bool accumulate, Product product, at::Tensor y) {
  if (w.dtype() == at::kFloat) arithmetic = MatmulArithmetic::kFp32;
  at::Tensor rows = x.stride(1) == 1 ? x : x.contiguous();
  if (arithmetic == MatmulArithmetic::kBf16) rows = RoundRows(rows);
  const WeightMatmulTask task = {.weight = w.panels(),
                                 .x = rows.const_data_ptr(),
                                 .x_stride = rows.stride(0),
                                 .y = y.mutable_data_ptr<float>(),
                                 .y_stride = y.stride(0),
                                 .num_rows = y.size(0),
                                 .accumulate = accumulate};
  const int64_t num_panels = (y.size(1) + kMatmulPanel - 1) / kMatmulPanel;
  const int64_t panel_products = y.size(0) * kMatmulPanel * x.size(1);
  const int64_t num_threads = ComputeTeam().num_threads();
  RunInPieces(num_panels, num_panels * panel_products, num_threads,
              [&](int64_t first, int64_t last) {
                const int64_t most_tasks = kTasksPerThread * num_threads;
                const int64_t panels =  // per task
                    std::min((last - first + most_tasks - 1) / most_tasks, kMostTaskPanels);
                ForTasks((last - first + panels - 1) / panels, (last - first) * panel_products,
                         [&](int64_t i) {
                           product(task, arithmetic, first + i * panels,
                                   std::min(last, first + (i + 1) * panels));
                         });
              });
}

at::Tensor MultiplyByTorch(const at::Tensor& x, const at::Tensor& w,
                           at::ScalarType dtype = at::kFloat) {
  const at::Tensor rows = x.to(w.scalar_type());
  // A folder may have matrices of both dtypes.
  if (w.scalar_type() == at::kFloat) return at::mm(rows, w).to(dtype);
  return dtype == w.scalar_type() ? at::mm(rows, w) : at::mm(rows, w, dtype);
}

}  // namespace

at::Tensor BaseLinear(const at::Tensor& x, const BaseWeight& w, const at::Tensor& bias,
                      MatmulArithmetic arithmetic, at::ScalarType dtype) {
  if (!w.device().is_cpu()) {
    at::Tensor y = MultiplyByTorch(x, w.matrix().t(), dtype);
    return bias.defined() ? y.add_(bias) : y;
  }
  at::Tensor y = bias.defined() ? bias.repeat({x.size(0), 1})  // never a view of the bias itself
                                : at::empty({x.size(0), w.n()}, x.options());
  Multiply(x, w, arithmetic, /*accumulate=*/bias.defined(), MatmulTransposed, y);
  return y;
}

void BaseLinearInto(const at::Tensor& x, const BaseWeight& w, MatmulArithmetic arithmetic,
                    at::Tensor y) {
  if (w.device().is_cpu()) {
    Multiply(x, w, arithmetic, /*accumulate=*/false, MatmulTransposed, y);
  } else {
    y.copy_(MultiplyByTorch(x, w.matrix().t()));
  }
}

at::Tensor BaseLinearOnto(const at::Tensor& residual, const at::Tensor& x, const BaseWeight& w,
                          const at::Tensor& bias, MatmulArithmetic arithmetic) {
  at::Tensor y;
  if (w.device().is_cpu()) {
    y = at::empty(residual.sizes(), residual.options());
    CopyRows(residual, y);
    Multiply(x, w, arithmetic, /*accumulate=*/true, MatmulTransposed, y);
  } else {
    y = MultiplyByTorch(x, w.matrix().t()).add_(residual);
  }
  return bias.defined() ? y.add_(bias) : y;
}

at::Tensor BaseLinearBackward(const at::Tensor& dy, const BaseWeight& w,
                              MatmulArithmetic arithmetic, at::ScalarType dtype) {
  if (!w.device().is_cpu()) return MultiplyByTorch(dy, w.matrix(), dtype);
  at::Tensor dx = at::empty({dy.size(0), w.k()}, dy.options());
  Multiply(dy, w, arithmetic, /*accumulate=*/false, MatmulPlain, dx);
  return dx;
}

void AddBaseLinearBackward(const at::Tensor& dy, const BaseWeight& w, MatmulArithmetic arithmetic,
                           at::Tensor dx) {
  if (w.device().is_cpu()) {
    Multiply(dy, w, arithmetic, /*accumulate=*/true, MatmulPlain, dx);
  } else {
    dx.add_(MultiplyByTorch(dy, w.matrix()));
  }
}

}  // namespace lathe::worker
