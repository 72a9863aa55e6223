// A frozen matrix of a base model.
#pragma once

#include <cstdint>
#include <memory>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/spec/shard.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// One copy of a matrix [n, k] in bf16 or fp32: in panels on a CPU (weight_panels.h), row-major on
// another device. Copies of the object share the memory.
class BaseWeight {
 public:
  BaseWeight() = default;  // no matrix
  // Creates a matrix of zeros. SetRows fills it.
  BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, at::Device device);
  // Creates the matrix in `memory` [NumBytes(n, k, dtype, its device)] bytes, which must hold
  // zeros. Later writes to `memory` change the matrix.
  BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, const at::Tensor& memory);
  // Copies `matrix` [n, k], in its dtype and on its device.
  explicit BaseWeight(const at::Tensor& matrix);

  // Sets the rows from `first` on; each row may be set once. `rows` is [num_rows, k], on the CPU,
  // of any float dtype. The conversion works on some rows at a time and never copies the whole
  // matrix.
  void SetRows(int64_t first, const at::Tensor& rows);

  // Returns rows `indices` [T] int64 of the matrix: [T, k] fp32. Throws if an index is out of
  // range.
  at::Tensor Rows(const at::Tensor& indices) const;
  // Like Rows, for a larger matrix of which this one is the rows from `first` on. Other rows are
  // zero.
  at::Tensor RowsOrZero(const at::Tensor& indices, int64_t first) const;
  // Returns the whole matrix [n, k] in its dtype, a copy on a CPU. For tests.
  at::Tensor ToTensor() const;

  int64_t n() const { return panels_.n; }
  int64_t k() const { return panels_.k; }
  at::ScalarType dtype() const { return panels_.is_bf16 ? at::kBFloat16 : at::kFloat; }
  at::Device device() const { return device_; }
  // Memory in bytes, including the padding of the panels.
  int64_t NumBytes() const;
  static int64_t NumBytes(int64_t n, int64_t k, at::ScalarType dtype, at::Device device);
  // Returns the rows that have elements in bytes [begin, end) of the memory, in whole panels.
  Shard RowsWithin(int64_t begin, int64_t end) const;
  bool SharesMemoryWith(const BaseWeight& other) const;

  // The panels; only on a CPU.
  const WeightPanels& panels() const { return panels_; }
  // The matrix [n, k]; only on other devices.
  const at::Tensor& matrix() const { return matrix_; }

 private:
  at::Device device_ = at::kCPU;
  WeightPanels panels_ = {};      // without data on other devices
  std::shared_ptr<void> memory_;  // owns the panels
  at::Tensor matrix_;
};

}  // namespace lathe::worker
