// The CPU work of one group of LoRA linears: places of rows, factors and intermediate products, and
// its execution. Threads divide outputs, never a sum, so that bits do not depend on their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/worker/lora/lora_linear.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Rows of fp32 numbers. Views of inputs are only read, although `data` is not const.
struct RowView {
  float* data;
  int64_t stride;
  int64_t width;
  float* Row(int64_t row) const { return data + row * stride; }
};
RowView ViewOf(const at::Tensor& x);

// One part of a span. Its factors are [first, first + rank) of the span's factors.
struct LoraPlanPair {
  size_t part;
  int64_t first;
  int64_t rank;
};

// A segment to which at least one part applies. The factors of its pairs are consecutive, so that
// one sweep over x serves all of them.
struct LoraSpan {
  int64_t begin;  // row range
  int64_t end;
  float scaling;
  int64_t gradient_index;
  std::vector<LoraPlanPair> pairs;
  std::vector<const float*> a;  // rows of A of all pairs, [in_features] each
  std::vector<const float*> b;  // columns of B of all pairs, [out_features] each
  int64_t offset;               // start of its products [rows, num_factors]
  int64_t num_factors() const { return static_cast<int64_t>(a.size()); }
};

// A plan holds pointers into its inputs and does not own them.
struct LoraPlan {
  RowView x;
  std::vector<RowView> y;  // by part
  std::vector<LoraSpan> spans;
  int64_t num_products = 0;
  // Cost of the forward step in multiply-adds. With few rows, reading the factors dominates.
  int64_t cost = 0;
};

// Plans the work for `x` and `parts`: fp32 on a CPU, the numbers of a row contiguous. With
// `only_trained`, segments without a gradient index are left out.
LoraPlan PlanLora(const at::Tensor& x, const std::vector<Segment>& segments,
                  const std::vector<LoraPart>& parts, bool only_trained);

// Executes a plan's part of AddLora.
void AddLoraRows(const LoraPlan& plan);

// Executes a plan's part of AddLoraBackward. `parts` are those of the plan.
void AddLoraRowsBackward(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                         const std::vector<AdapterGradients*>& gradients, const at::Tensor& dx);

// Second half of AddLoraRowsBackward: sums over rows, dA += dproducts^T x, dB += dy^T products.
//   products   scaling * x A^T, laid out by span
//   dproducts  scaling * dy B, same layout
void AddLoraGradients(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                      const std::vector<AdapterGradients*>& gradients, const float* products,
                      const float* dproducts);

}  // namespace lathe::worker
