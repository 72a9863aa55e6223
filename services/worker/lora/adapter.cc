#include "services/worker/lora/adapter.h"

#include <atomic>
#include <cmath>
#include <utility>

namespace lathe::worker {

namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection. Its outputs over a counter
// pass tests for independence.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

void FillKaimingUniform(at::Tensor matrix, uint64_t seed, std::string_view name,
                        int64_t in_features, int64_t first_column) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  const uint64_t key = Mix(Mix(seed + kGolden) ^ Fnv1a(name));
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  float* values = matrix.mutable_data_ptr<float>();
  for (int64_t row = 0; row < matrix.size(0); ++row) {
    for (int64_t column = 0; column < matrix.size(1); ++column) {
      const int64_t i = row * in_features + first_column + column;
      const uint64_t bits = Mix(key + kGolden * static_cast<uint64_t>(i + 1));
      const double unit = static_cast<double>(bits >> 11) * 0x1.0p-53;  // [0, 1)
      *values++ = static_cast<float>((2.0 * unit - 1.0) * bound);
    }
  }
}

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

void AdapterPool::Put(const std::string& model_id, std::shared_ptr<Adapter> adapter) {
  adapters_[model_id] = std::move(adapter);
}

void AdapterPool::Drop(const std::string& model_id) { adapters_.erase(model_id); }

std::shared_ptr<Adapter> AdapterPool::Find(const std::string& model_id) const {
  const auto it = adapters_.find(model_id);
  return it == adapters_.end() ? nullptr : it->second;
}

}  // namespace lathe::worker
