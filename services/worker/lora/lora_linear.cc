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
  if (segments.size() == 1 && segments[0].slots != nullptr) {
    segments[0].slots->Add(x, parts);
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

void AddLoraByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                    const std::vector<LoraPart>& parts) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr) continue;
    for (const LoraPart& part : parts) {
      const LoraPair& pair = part.Of(segment.adapter->tensors);
      if (!pair.defined()) continue;
      const at::Tensor xa = at::mm(RowsOf(x, segment), pair.a.t());
      RowsOf(part.y, segment).addmm_(xa, pair.b_t, /*beta=*/1, segment.adapter->scaling);
    }
  }
}

void AddLoraBackwardByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                            const std::vector<LoraPart>& parts,
                            const std::vector<AdapterGradients*>& gradients, at::Tensor dx) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr || segment.gradient_index < 0) continue;
    for (const LoraPart& part : parts) {
      const LoraPair& pair = part.Of(segment.adapter->tensors);
      if (!pair.defined()) continue;
      const LoraPair& gradient = part.Of(gradients[segment.gradient_index]->tensors);
      const double scaling = segment.adapter->scaling;
      const at::Tensor x_rows = RowsOf(x, segment);
      const at::Tensor dy_rows = RowsOf(part.y, segment);

      // x A^T is recomputed: this costs a few percent and saves [T, rank] per linear and layer.
      const at::Tensor xa = at::mm(x_rows, pair.a.t());
      const at::Tensor dxa = at::mm(dy_rows, pair.b()).mul_(scaling);
      at::Tensor(gradient.b_t).addmm_(xa.t(), dy_rows, /*beta=*/1, /*alpha=*/scaling);
      at::Tensor(gradient.a).addmm_(dxa.t(), x_rows);
      RowsOf(dx, segment).addmm_(dxa, pair.a);
    }
  }
}

}  // namespace lathe::worker
