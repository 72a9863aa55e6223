#include "services/worker/models/stacked_linear.h"

#include "services/worker/layers/base_linear.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/lora/lora_slots.h"

namespace lathe::worker {

StackedLinear::StackedLinear(const ModelPart& part, const DecoderWeights& weights, int64_t index)
    : weight_(weights.stacks[index]),
      bias_(weights.biases[index]),
      arithmetic_(weights.arithmetic),
      first_row_(part.whole.linears->stacks[index].first),
      unit_(part.whole.linears->stacks[index].unit),
      is_first_rank_(part.place.index == 0) {
  const LinearTable& table = *part.whole.linears;
  int64_t end = 0;
  for (int64_t i = 0; i < table.stacks[index].count; ++i) {
    end += OutputsOf(part, table.rows[first_row_ + i]).features.size;
    ends_.push_back(end);
  }
}

at::Tensor StackedLinear::Slice(const at::Tensor& y, int64_t i) const {
  const int64_t begin = i == 0 ? 0 : ends_[i - 1];
  return y.narrow(1, begin, ends_[i] - begin);
}

std::vector<LoraPart> StackedLinear::PartsOf(const at::Tensor& y) const {
  if (ends_.size() == 1) return {{first_row_, y}};
  std::vector<LoraPart> parts;
  parts.reserve(ends_.size());
  for (int64_t i = 0; i < static_cast<int64_t>(ends_.size()); ++i) {
    parts.push_back({first_row_ + i, Slice(y, i)});
  }
  return parts;
}

at::Tensor StackedLinear::Forward(const at::Tensor& x, const std::vector<Segment>& segments) const {
  if (const LoraSlots* const slots = SlotsOf(segments)) {
    at::Tensor y = BaseLinear(x, weight_, /*bias=*/{}, arithmetic_, x.scalar_type());
    slots->Add(x, PartsOf(y), {.residual = {}, .bias = bias_});
    return y;
  }
  at::Tensor y = BaseLinear(x, weight_, bias_, arithmetic_, x.scalar_type());
  AddLora(x, segments, PartsOf(y));
  return y;
}

at::Tensor StackedLinear::ForwardGated(Activation activation, const at::Tensor& x,
                                       const std::vector<Segment>& segments) const {
  if (const LoraSlots* const slots = SlotsOf(segments)) {
    const at::Tensor y = BaseLinear(x, weight_, /*bias=*/{}, arithmetic_, x.scalar_type());
    return slots->AddGated(activation, x, PartsOf(y), {.residual = {}, .bias = bias_});
  }
  const at::Tensor y = Forward(x, segments);
  return GatedActivation(activation, Slice(y, 0), Slice(y, 1));
}

at::Tensor StackedLinear::ForwardOnto(const at::Tensor& residual, const at::Tensor& x,
                                      const std::vector<Segment>& segments) const {
  const LoraAddends own = is_first_rank_ ? LoraAddends{residual, bias_} : LoraAddends{};
  if (const LoraSlots* const slots = SlotsOf(segments)) {
    at::Tensor y = BaseLinear(x, weight_, /*bias=*/{}, arithmetic_);
    slots->Add(x, PartsOf(y), own);
    return y;
  }
  at::Tensor y = own.residual.defined()
                     ? BaseLinearOnto(own.residual, x, weight_, own.bias, arithmetic_)
                     : BaseLinear(x, weight_, own.bias, arithmetic_);
  AddLora(x, segments, PartsOf(y));
  return y;
}

at::Tensor StackedLinear::Backward(const at::Tensor& x, const at::Tensor& dy,
                                   const std::vector<Segment>& segments,
                                   const std::vector<AdapterGradients*>& gradients,
                                   at::ScalarType dtype) const {
  const at::Tensor dy_rows = dy.to(x.scalar_type());
  at::Tensor dx = BaseLinearBackward(dy_rows, weight_, arithmetic_, dtype);
  AddLoraBackward(x, segments, PartsOf(dy_rows), gradients, dx);
  return dx;
}

}  // namespace lathe::worker
