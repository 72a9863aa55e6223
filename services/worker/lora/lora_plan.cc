#include "services/worker/lora/lora_plan.h"

#include <utility>

namespace lathe::worker {
namespace {

// Number of multiply-adds that take as long as reading one number from memory.
constexpr int64_t kReadingCost = 8;

void AddPair(const LoraPair& pair, size_t part, LoraPlan& plan, LoraSpan& span) {
  const int64_t rank = pair.a.size(0);
  const int64_t out_features = plan.y[part].width;
  span.pairs.push_back({part, span.num_factors(), rank});
  const float* a = pair.a.const_data_ptr<float>();
  const float* b = pair.b_t.const_data_ptr<float>();
  for (int64_t j = 0; j < rank; ++j) {
    span.a.push_back(a + j * plan.x.width);
    span.b.push_back(b + j * out_features);
  }
  const int64_t num_numbers = rank * (plan.x.width + out_features);
  plan.cost += (span.end - span.begin + kReadingCost) * num_numbers;
}

}  // namespace

RowView ViewOf(const at::Tensor& x) {
  return {static_cast<float*>(x.data_ptr()), x.stride(0), x.size(1)};
}

LoraPlan PlanLora(const at::Tensor& x, const std::vector<Segment>& segments,
                  const std::vector<LoraPart>& parts, bool only_trained) {
  LoraPlan plan{.x = ViewOf(x)};
  for (const LoraPart& part : parts) plan.y.push_back(ViewOf(part.y));
  for (const Segment& segment : segments) {
    if (segment.adapter == nullptr || segment.begin == segment.end) continue;
    if (only_trained && segment.gradient_index < 0) continue;
    LoraSpan span{.begin = segment.begin,
                  .end = segment.end,
                  .scaling = static_cast<float>(segment.adapter->scaling),
                  .gradient_index = segment.gradient_index,
                  .offset = plan.num_products};
    for (size_t part = 0; part < parts.size(); ++part) {
      const LoraPair& pair = parts[part].Of(segment.adapter->tensors);
      if (pair.defined()) AddPair(pair, part, plan, span);
    }
    if (span.pairs.empty()) continue;
    plan.num_products += (span.end - span.begin) * span.num_factors();
    plan.spans.push_back(std::move(span));
  }
  return plan;
}

}  // namespace lathe::worker
