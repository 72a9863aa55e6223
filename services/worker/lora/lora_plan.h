// Where the rows, factors and intermediate products of one group of LoRA linears lie on a CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/lora/lora_linear.h"

namespace lathe::worker {

// Rows of fp32 numbers; inputs are only read.
struct RowView {
  float* data;
  int64_t stride;
  int64_t width;
  float* Row(int64_t row) const { return data + row * stride; }
};
RowView ViewOf(const at::Tensor& x);

// One part of a span: its factors are [first, first + rank) of the span's.
struct LoraPlanPair {
  size_t part;
  int64_t first;
  int64_t rank;
};

// A segment that some part applies to. The factors of its pairs follow each other, so that one
// sweep of x serves all of them.
struct LoraSpan {
  int64_t begin;  // rows
  int64_t end;
  float scaling;
  int64_t gradient_index;
  std::vector<LoraPlanPair> pairs;
  std::vector<const float*> a;  // rows of A of all pairs, [in_features] each
  std::vector<const float*> b;  // columns of B of all pairs, [out_features] each
  int64_t offset;               // of its products [rows, num_factors]
  int64_t num_factors() const { return static_cast<int64_t>(a.size()); }
};

// Borrows all it is made from.
struct LoraPlan {
  RowView x;
  std::vector<RowView> y;  // by part
  std::vector<LoraSpan> spans;
  int64_t num_products = 0;
  // Of the forward step, in multiply-adds: of few rows reading the factors takes the most.
  int64_t cost = 0;
};

// x and the parts: fp32 on a CPU, numbers of a row side by side. With `only_trained`, segments
// without a gradient index are left out.
LoraPlan PlanLora(const at::Tensor& x, const std::vector<Segment>& segments,
                  const std::vector<LoraPart>& parts, bool only_trained);

}  // namespace lathe::worker
