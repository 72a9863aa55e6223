// A frozen matrix of a base model.
#pragma once

#include <cstdint>
#include <memory>

#include "services/worker/aten.h"
#include "services/worker/kernels/cpu/weight_panels.h"
#include "services/worker/models/shard.h"

namespace lathe::worker {

// A matrix [n, k] in bf16 or fp32, in one copy: in panels on a CPU (weight_panels.h), row-major
// elsewhere. Copies of the object share the memory.
class BaseWeight {
 public:
  BaseWeight() = default;  // no matrix
  // Zeros, to be filled by SetRows.
  BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, at::Device device);
  // The same in `memory` [NumBytes(n, k, dtype, its device)] bytes, which hold zeros by then. What
  // is written there afterwards is its numbers.
  BaseWeight(int64_t n, int64_t k, at::ScalarType dtype, const at::Tensor& memory);
  // Of `matrix` [n, k], in its dtype and on its device.
  explicit BaseWeight(const at::Tensor& matrix);

  // Sets rows from `first` on, each row once. `rows` [num_rows, k] of any float dtype on the CPU;
  // converted some rows at a time, so that no second copy of them comes to be.
  void SetRows(int64_t first, const at::Tensor& rows);

  // Rows `indices` [T] int64 of the matrix: [T, k] fp32. Throws on an index outside.
  at::Tensor Rows(const at::Tensor& indices) const;
  // The same of a larger matrix, of which this one is the rows from `first` on: zero for others.
  at::Tensor RowsOrZero(const at::Tensor& indices, int64_t first) const;
  // The whole matrix [n, k] in its dtype, a copy on a CPU: for tests.
  at::Tensor ToTensor() const;

  int64_t n() const { return panels_.n; }
  int64_t k() const { return panels_.k; }
  at::ScalarType dtype() const { return panels_.is_bf16 ? at::kBFloat16 : at::kFloat; }
  at::Device device() const { return device_; }
  // Of memory, with what fills up the panels.
  int64_t NumBytes() const;
  static int64_t NumBytes(int64_t n, int64_t k, at::ScalarType dtype, at::Device device);
  // The rows that bytes [begin, end) of the memory have numbers of, whole panels of them.
  Shard RowsWithin(int64_t begin, int64_t end) const;
  bool SharesMemoryWith(const BaseWeight& other) const;

  // On a CPU.
  const WeightPanels& panels() const { return panels_; }
  // Elsewhere: [n, k].
  const at::Tensor& matrix() const { return matrix_; }

 private:
  at::Device device_ = at::kCPU;
  WeightPanels panels_ = {};      // elsewhere without data
  std::shared_ptr<void> memory_;  // of the panels
  at::Tensor matrix_;
};

}  // namespace lathe::worker
