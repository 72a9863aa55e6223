#include "services/worker/lora/adapter.h"

#include <atomic>

#include <utility>

#include "services/worker/lora/adapter_init.h"

namespace lathe::worker {

namespace {

// Returns true if only the caller holds `weights`. Threads that released them have finished
// reading.
bool IsHeldHereOnly(const std::shared_ptr<AdapterWeights>& weights) {
  if (weights == nullptr || weights.use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

at::Tensor InitialParameters(const ModelPart& model, const LoraSpec& lora) {
  at::Tensor initial = at::zeros({NumAdapterParameters(model, lora)}, at::kFloat);
  for (const AdapterMatrix& matrix : AdapterLayout(model, lora)) {
    if (matrix.is_b) continue;
    FillKaimingUniform(matrix.Of(initial), lora.seed, matrix.name(), matrix.whole_features,
                       matrix.features.begin);
  }
  return initial;
}

}  // namespace

Adapter::Adapter(const ModelPart& model, const LoraSpec& lora, at::Device device)
    : Adapter(model, lora, InitialParameters(model, lora).to(device)) {}

Adapter::Adapter(const ModelPart& model, const LoraSpec& lora, const at::Tensor& flat)
    : model_(model), lora_(lora), sizes_(SizesOfAdapter(model, lora)) {
  weights_ = MakeWeights(flat);
  exp_avg = at::zeros_like(parameters());
  exp_avg_sq = at::zeros_like(parameters());
  gradient = at::zeros_like(parameters());
}

at::Tensor Adapter::MutableParameters() {
  if (!IsHeldHereOnly(weights_)) weights_ = MakeWeights(parameters().clone());
  return parameters();
}

std::shared_ptr<AdapterWeights> Adapter::PrepareNext() {
  if (IsHeldHereOnly(weights_)) return weights_;
  if (IsHeldHereOnly(replaced_)) return replaced_;
  return MakeWeights(at::empty_like(parameters()));
}

void Adapter::Replace(std::shared_ptr<AdapterWeights> next) {
  if (next != weights_) replaced_ = std::exchange(weights_, std::move(next));
}

Adapter Adapter::Snapshot() const {
  Adapter copy = *this;
  copy.replaced_ = nullptr;
  copy.gradient = at::Tensor();
  // Weights on a CPU are shared: they do not change while the copy holds them.
  if (!parameters().is_cpu()) copy.weights_ = MakeWeights(parameters().to(at::kCPU));
  for (at::Tensor* moment : {&copy.exp_avg, &copy.exp_avg_sq}) {
    *moment = moment->to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  return copy;
}

void Adapter::ClearGradient() {
  gradient.zero_();
  window.clear();
}

AdapterGradients Adapter::MakeGradients() const {
  return GradientsOver(at::zeros_like(parameters()));
}

AdapterGradients Adapter::GradientsOver(at::Tensor flat) const {
  return {ViewAdapter(flat, model_, lora_)};
}

}  // namespace lathe::worker
