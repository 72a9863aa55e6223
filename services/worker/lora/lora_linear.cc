#include "services/worker/lora/lora_linear.h"

#include <algorithm>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/lora/lora_plan.h"
#include "services/worker/lora/lora_slots.h"

namespace lathe::worker {
namespace {

at::Tensor RowsOf(const at::Tensor& x, const Segment& segment) {
  return x.narrow(0, segment.begin, segment.end - segment.begin);
}

bool HasCpuParts(const at::Tensor& x, const std::vector<LoraPart>& parts) {
  return HasCpuRows(x) && std::all_of(parts.begin(), parts.end(),
                                      [](const LoraPart& part) { return HasCpuRows(part.y); });
}

}  // namespace

void AddLora(const at::Tensor& x, const std::vector<Segment>& segments,
             const std::vector<LoraPart>& parts) {
  if (const LoraSlots* const slots = SlotsOf(segments)) {
    slots->Add(x, parts);
  } else if (HasCpuParts(x, parts)) {
    AddLoraRows(PlanLora(x, segments, parts, /*only_trained=*/false));
  } else {
    AddLoraByTorch(x, segments, parts);
  }
}

void AddLoraBackward(const at::Tensor& x, const std::vector<Segment>& segments,
                     const std::vector<LoraPart>& parts,
                     const std::vector<AdapterGradients*>& gradients, at::Tensor dx) {
  if (HasCpuParts(x, parts) && HasCpuRows(dx)) {
    AddLoraRowsBackward(PlanLora(x, segments, parts, /*only_trained=*/true), parts, gradients, dx);
  } else {
    AddLoraBackwardByTorch(x, segments, parts, gradients, dx);
  }
}

namespace {

// The parts of a segment's adapter that are trained, and their A stacked along the rank, in x's
// dtype: one product with x serves all of them.
struct StackedParts {
  StackedParts(const Segment& segment, const std::vector<LoraPart>& parts, at::ScalarType dtype) {
    std::vector<at::Tensor> factors;
    for (const LoraPart& part : parts) {
      const LoraPair& pair = part.Of(segment.adapter->tensors);
      if (!pair.defined()) continue;
      defined.push_back(&part);
      pairs.push_back({.a = pair.a, .b_t = pair.b_t.to(dtype)});
      factors.push_back(pair.a);
    }
    if (!factors.empty()) a = (factors.size() == 1 ? factors[0] : at::cat(factors)).to(dtype);
  }

  // Returns the columns (or, of A's gradient, the rows) of part `i` in x [., R].
  at::Tensor Slice(const at::Tensor& x, int64_t dim, size_t i) const {
    int64_t first = 0;
    for (size_t before = 0; before < i; ++before) first += pairs[before].a.size(0);
    return x.narrow(dim, first, pairs[i].a.size(0));
  }

  std::vector<const LoraPart*> defined;
  std::vector<LoraPair> pairs;  // A in fp32, B in x's dtype
  at::Tensor a;                 // [R, in_features]
};

// sum += alpha a b. The sum is fp32 or has the factors' dtype.
void AddProduct(at::Tensor sum, const at::Tensor& a, const at::Tensor& b, double alpha) {
  if (sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a, b, /*beta=*/1, alpha);
  } else {
    at::addmm_out(sum, sum, a, b, sum.scalar_type(), /*beta=*/1, alpha);
  }
}

}  // namespace

void AddLoraByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                    const std::vector<LoraPart>& parts) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr) continue;
    const StackedParts stacked(segment, parts, x.scalar_type());
    if (stacked.defined.empty()) continue;
    const at::Tensor xa = at::mm(RowsOf(x, segment), stacked.a.t());
    for (size_t i = 0; i < stacked.defined.size(); ++i) {
      AddProduct(RowsOf(stacked.defined[i]->y, segment), stacked.Slice(xa, 1, i),
                 stacked.pairs[i].b_t, segment.adapter->scaling);
    }
  }
}

void AddLoraBackwardByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                            const std::vector<LoraPart>& parts,
                            const std::vector<AdapterGradients*>& gradients, at::Tensor dx) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr || segment.gradient_index < 0) continue;
    const StackedParts stacked(segment, parts, x.scalar_type());
    if (stacked.defined.empty()) continue;
    const AdapterTensors& sums = gradients[segment.gradient_index]->tensors;
    const double scaling = segment.adapter->scaling;
    const at::Tensor x_rows = RowsOf(x, segment);
    // x A^T is recomputed: this costs a few percent and saves [T, rank] per linear and layer.
    const at::Tensor xa = at::mm(x_rows, stacked.a.t());
    at::Tensor dxa = at::empty_like(xa);
    for (size_t i = 0; i < stacked.defined.size(); ++i) {
      const LoraPart& part = *stacked.defined[i];
      const at::Tensor dy_rows = RowsOf(part.y, segment);
      stacked.Slice(dxa, 1, i).copy_(at::mm(dy_rows, stacked.pairs[i].b()).mul_(scaling));
      AddProduct(part.Of(sums).b_t, stacked.Slice(xa, 1, i).t(), dy_rows, scaling);
    }
    if (stacked.defined.size() == 1) {
      AddProduct(stacked.defined[0]->Of(sums).a, dxa.t(), x_rows, /*alpha=*/1);
    } else {
      const at::Tensor da = at::empty(stacked.a.sizes(), stacked.pairs[0].a.options()).zero_();
      AddProduct(da, dxa.t(), x_rows, /*alpha=*/1);
      for (size_t i = 0; i < stacked.defined.size(); ++i) {
        at::Tensor(stacked.defined[i]->Of(sums).a).add_(stacked.Slice(da, 0, i));
      }
    }
    AddProduct(RowsOf(dx, segment), dxa, stacked.a, /*alpha=*/1);
  }
}

}  // namespace lathe::worker
