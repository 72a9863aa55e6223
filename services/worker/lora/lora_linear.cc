#include "services/worker/lora/lora_linear.h"

namespace lathe::worker {
namespace {

at::Tensor RowsOf(const at::Tensor& x, const Segment& segment) {
  return x.narrow(0, segment.begin, segment.end - segment.begin);
}

}  // namespace

void AddLora(const at::Tensor& x, const std::vector<Segment>& segments, const LoraSlot& slot,
             at::Tensor y) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr) continue;
    const LoraPair& pair = slot.Of(segment.adapter->tensors);
    if (!pair.defined()) continue;
    const at::Tensor xa = at::mm(RowsOf(x, segment), pair.a.t());
    RowsOf(y, segment).addmm_(xa, pair.b.t(), /*beta=*/1, segment.adapter->scaling);
  }
}

void AddLoraBackward(const at::Tensor& x, const at::Tensor& dy,
                     const std::vector<Segment>& segments, const LoraSlot& slot,
                     std::vector<AdapterGradients*>& gradients, at::Tensor dx) {
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr || segment.gradient_index < 0) continue;
    const LoraPair& pair = slot.Of(segment.adapter->tensors);
    if (!pair.defined()) continue;
    const LoraPair& gradient = slot.Of(gradients[segment.gradient_index]->tensors);
    const double scaling = segment.adapter->scaling;
    const at::Tensor x_rows = RowsOf(x, segment);
    const at::Tensor dy_rows = RowsOf(dy, segment);

    // x A^T is computed again: it costs a few percent and saves [T, rank] per linear and layer.
    const at::Tensor xa = at::mm(x_rows, pair.a.t());
    const at::Tensor dxa = at::mm(dy_rows, pair.b).mul_(scaling);
    at::Tensor(gradient.b).addmm_(dy_rows.t(), xa, /*beta=*/1, /*alpha=*/scaling);
    at::Tensor(gradient.a).addmm_(dxa.t(), x_rows);
    RowsOf(dx, segment).addmm_(dxa, pair.a);
  }
}

}  // namespace lathe::worker
