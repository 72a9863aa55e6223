#include "services/worker/layers/base_weight.h"

#include <algorithm>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

// Rows that are converted and set together: enough for many panels, few enough to save memory.
constexpr int64_t kRowsTogether = 4096;

WeightPanels PanelsOf(int64_t n, int64_t k, at::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kFloat, "a base weight is bf16 or fp32");
  return {.data = nullptr, .is_bf16 = dtype == at::kBFloat16, .n = n, .k = k};
}

template <typename From>
void ToFloat(const From* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

// Returns `rows` [n, k] in `dtype`, contiguous. Does not use at::to where a folder needs it: each
// thread that reads tensors would start a thread pool of ATen's.
at::Tensor Converted(const at::Tensor& rows, at::ScalarType dtype) {
  const at::Tensor from = rows.contiguous();
  if (from.scalar_type() == dtype) return from;
  if (dtype != at::kFloat) return from.to(dtype);
  at::Tensor to = at::empty(from.sizes(), dtype);
  float* const out = to.mutable_data_ptr<float>();
  switch (from.scalar_type()) {
    case at::kHalf:
      ToFloat(from.const_data_ptr<at::Half>(), from.numel(), out);
      return to;
    case at::kBFloat16:
      ToFloat(from.const_data_ptr<at::BFloat16>(), from.numel(), out);
      return to;
    default:
      return from.to(dtype);
  }
}

}  // namespace

BaseWeight::BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, at::Device device)
    : device_(device), panels_(PanelsOf(n, k, dtype)) {
  if (device.is_cpu()) {
    memory_ = AllocateHugePages(panels_.NumBytes());
    panels_.data = memory_.get();
  } else {
    matrix_ = at::zeros({n, k}, at::TensorOptions().dtype(dtype).device(device));
  }
}

BaseWeight::BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, const at::Tensor& memory)
    : device_(memory.device()), panels_(PanelsOf(n, k, dtype)) {
  TORCH_CHECK(memory.nbytes() == static_cast<size_t>(NumBytes(n, k, dtype, device_)),
              "memory of a base weight has ", memory.nbytes(), " bytes");
  if (device_.is_cpu()) {
    memory_ = std::shared_ptr<void>(memory.mutable_data_ptr(), [memory](void*) {});
    panels_.data = memory_.get();
  } else {
    matrix_ = memory.view(dtype).view({n, k});
  }
}

BaseWeight::BaseWeight(const at::Tensor& matrix)
    : BaseWeight(matrix.size(0), matrix.size(1), matrix.scalar_type(), matrix.device()) {
  if (device_.is_cpu()) {
    SetRows(0, matrix);
  } else {
    matrix_.copy_(matrix);
  }
}

void BaseWeight::SetRows(int64_t first, const at::Tensor& rows) {
  TORCH_CHECK(rows.size(1) == k() && first >= 0 && first + rows.size(0) <= n(),
              "rows outside of the base weight");
  if (!device_.is_cpu()) {
    matrix_.narrow(0, first, rows.size(0)).copy_(rows);
    return;
  }
  for (int64_t done = 0; done < rows.size(0); done += kRowsTogether) {
    const int64_t num_rows = std::min(kRowsTogether, rows.size(0) - done);
    const int64_t row = first + done;
    const at::Tensor part = Converted(rows.narrow(0, done, num_rows), dtype());
    const int64_t first_panel = row / kMatmulPanel;
    const int64_t end_panel = (row + num_rows - 1) / kMatmulPanel + 1;
    ForParts(end_panel - first_panel, /*grain=*/1, [&](int64_t begin, int64_t end) {
      SetPanelRows(panels_, memory_.get(), part.const_data_ptr(), row, num_rows,
                   first_panel + begin, first_panel + end);
    });
  }
}

at::Tensor BaseWeight::Rows(const at::Tensor& indices) const {
  if (!device_.is_cpu()) return matrix_.index_select(0, indices).to(at::kFloat);
  const int64_t num_rows = indices.size(0);
  const at::Tensor contiguous = indices.contiguous();
  const auto* from = contiguous.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_rows; ++i) {
    TORCH_CHECK(from[i] >= 0 && from[i] < n(), "row ", from[i], " of a matrix of ", n());
  }
  return RowsOrZero(contiguous, /*first=*/0);
}

at::Tensor BaseWeight::RowsOrZero(const at::Tensor& indices, int64_t first) const {
  if (!device_.is_cpu()) {
    const at::Tensor own = indices - first;
    const at::Tensor is_other = at::lt(own, 0).logical_or_(at::ge(own, n()));
    return matrix_.index_select(0, own.clamp(0, n() - 1))
        .to(at::kFloat)
        .masked_fill_(is_other.unsqueeze(1), 0);
  }
  const int64_t num_rows = indices.size(0);
  const at::Tensor contiguous = indices.contiguous();
  const auto* from = contiguous.const_data_ptr<int64_t>();
  at::Tensor y = at::empty({num_rows, k()}, at::kFloat);
  auto* const to = y.mutable_data_ptr<float>();
  ForRows(num_rows, k(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = from[i] - first;
      if (row >= 0 && row < n()) {
        GetPanelRow(panels_, row, to + i * k());
      } else {
        std::fill_n(to + i * k(), k(), 0.0f);
      }
    }
  });
  return y;
}

at::Tensor BaseWeight::ToTensor() const {
  if (!device_.is_cpu()) return matrix_;
  return Rows(at::arange(n(), at::kLong)).to(dtype());
}

int64_t BaseWeight::NumBytes() const {
  return device_.is_cpu() ? panels_.NumBytes() : static_cast<int64_t>(matrix_.nbytes());
}

int64_t BaseWeight::NumBytes(int64_t n, int64_t k, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) return PanelsOf(n, k, dtype).NumBytes();
  return n * k * static_cast<int64_t>(c10::elementSize(dtype));
}

Shard BaseWeight::RowsWithin(int64_t begin, int64_t end) const {
  if (begin >= end) return {};
  const int64_t rows_together = device_.is_cpu() ? kMatmulPanel : 1;
  const int64_t num_bytes = NumBytes(rows_together, k(), dtype(), device_);
  const int64_t first = begin / num_bytes * rows_together;
  return {.begin = first,
          .size = std::min((end + num_bytes - 1) / num_bytes * rows_together, n()) - first};
}

bool BaseWeight::SharesMemoryWith(const BaseWeight& other) const {
  return device_.is_cpu() ? memory_ == other.memory_ : matrix_.is_same(other.matrix_);
}

}  // namespace lathe::worker
