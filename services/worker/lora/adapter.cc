#include "services/worker/lora/adapter.h"

#include <atomic>

#include <utility>

#include "services/worker/lora/adapter_init.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/lora/transposed_b.h"

namespace lathe::worker {

Adapter::Adapter(const ModelSpec& model, const LoraSpec& lora, at::Device device)
    : model_(model), lora_(lora) {
  at::Tensor initial = at::zeros({NumAdapterParameters(model, lora)}, at::kFloat);
  for (const AdapterMatrix& matrix : AdapterLayout(model, lora)) {
    if (matrix.is_b) continue;
    FillKaimingUniform(initial.narrow(0, matrix.offset, matrix.num_elements()), lora.seed,
                       matrix.name(), matrix.cols);
  }
  parameters = initial.to(device);
  exp_avg = at::zeros_like(parameters);
  exp_avg_sq = at::zeros_like(parameters);
  gradient = at::zeros_like(parameters);
}

std::shared_ptr<const AdapterWeights> Adapter::Publish() {
  if (!is_outdated_) return published_;
  if (published_ != nullptr && published_.use_count() == 1) {
    // Whoever let go of it on another thread has finished reading.
    std::atomic_thread_fence(std::memory_order_acquire);
    published_->tensors.flat.copy_(parameters);
  } else {
    published_ = std::make_shared<AdapterWeights>(AdapterWeights{
        .lora = lora_,
        .scaling = scaling(),
        .tensors = ViewAdapter(parameters.clone(), model_, lora_),
    });
  }
  if (parameters.is_cpu()) AddTransposedB(*published_);
  is_outdated_ = false;
  return published_;
}

void Adapter::ClearGradient() {
  gradient.zero_();
  window.clear();
}

AdapterGradients Adapter::MakeGradients() const {
  return GradientsOver(at::zeros_like(parameters));
}

AdapterGradients Adapter::GradientsOver(at::Tensor flat) const {
  return {ViewAdapter(flat, model_, lora_)};
}

}  // namespace lathe::worker
