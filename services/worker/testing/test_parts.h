// Parts of adapters on the ranks of axis tp, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/lora/adapter_layout.h"
#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {

// With four ranks, the vocabulary part of the last rank is padded. Adjacent ranks hold the same KV
// head if there are fewer than four KV heads.
inline DecoderSpec TestSpec(int64_t num_kv_heads = 2) {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 2,
                       .hidden_size = 8,
                       .intermediate_size = 12,
                       .num_heads = 4,
                       .num_kv_heads = num_kv_heads,
                       .head_dim = 6,
                       .vocab_size = 29});
}

inline ModelPart TestPart(const DecoderSpec& model, int64_t index, int64_t tp) {
  return ShardModel(model, {.index = index, .size = tp}).value();
}

inline std::vector<ModelPart> TestParts(const DecoderSpec& model, int64_t tp) {
  std::vector<ModelPart> parts;
  for (int64_t index = 0; index < tp; ++index) parts.push_back(TestPart(model, index, tp));
  return parts;
}

// Returns the part `part` of `whole`, which is the flat buffer of a single rank.
inline at::Tensor CutFlat(const at::Tensor& whole, const ModelPart& part, const LoraSpec& lora) {
  const std::vector<AdapterMatrix> whole_layout = AdapterLayout(WholeModel(part.whole), lora);
  const std::vector<AdapterMatrix> layout = AdapterLayout(part, lora);
  at::Tensor flat = at::zeros({NumAdapterParameters(part, lora)}, at::kFloat);
  for (size_t i = 0; i < layout.size(); ++i) {
    const Shard& features = layout[i].features;
    layout[i].FactorOf(flat).copy_(
        whole_layout[i].FactorOf(whole).narrow(1, features.begin, features.size));
  }
  return flat;
}

// Adds a rank's share of a gradient to `whole`, a flat buffer of a single rank.
inline void AddShare(at::Tensor whole, const at::Tensor& share, const ModelPart& part,
                     const LoraSpec& lora) {
  const std::vector<AdapterMatrix> whole_layout = AdapterLayout(WholeModel(part.whole), lora);
  const std::vector<AdapterMatrix> layout = AdapterLayout(part, lora);
  for (size_t i = 0; i < layout.size(); ++i) {
    const Shard& features = layout[i].features;
    whole_layout[i]
        .FactorOf(whole)
        .narrow(1, features.begin, features.size)
        .add_(layout[i].FactorOf(share));
  }
}

}  // namespace lathe::worker
