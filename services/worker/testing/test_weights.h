// Weights of a decoder from given matrices and norms, for tests.
#pragma once

#include <cstdint>

#include "services/worker/models/decoder_weights.h"
#include "services/worker/spec/decoder_spec.h"

namespace lathe::worker {

// Calls `matrix(n, k)` and `norm(size)` in a fixed order. `spec` is of one rank and has no biases.
template <typename Matrix, typename Norm>
DecoderWeights MakeWeights(const DecoderSpec& spec, const Matrix& matrix, const Norm& norm) {
  const int64_t h = spec.hidden_size;
  DecoderWeights weights;
  weights.embedding = {matrix(spec.vocab_size, h)};
  weights.lm_head = weights.embedding;
  if (!spec.tie_word_embeddings) weights.lm_head = {matrix(spec.vocab_size, h)};
  weights.stacks.resize(spec.linears->stacks.size());
  weights.biases.resize(spec.linears->stacks.size());
  weights.vectors.resize(spec.vectors->rows.size());
  weights.vectors[spec.vectors->final_norm] = norm(h);
  for (const LayerSpec& layer : spec.layers) {
    const int64_t d = layer.attention.head_dim;
    const int64_t q = layer.attention.num_heads * d;
    const int64_t kv = layer.attention.num_kv_heads * d;
    weights.vectors[layer.attention_norm] = norm(h);
    weights.stacks[layer.qkv] = matrix(q + 2 * kv, h);
    if (layer.attention.has_qk_norm) {
      weights.vectors[layer.q_norm] = norm(d);
      weights.vectors[layer.k_norm] = norm(d);
    }
    weights.stacks[layer.o] = matrix(h, q);
    weights.vectors[layer.mlp_norm] = norm(h);
    weights.stacks[layer.gate_up] = matrix(2 * layer.intermediate_size, h);
    weights.stacks[layer.down] = matrix(h, layer.intermediate_size);
  }
  return weights;
}

}  // namespace lathe::worker
