// The decoder of most dense families: layers alike, grouped-query attention, a gated MLP. Free of
// torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/spec/decoder_spec.h"

namespace lathe::worker {

// Fields of config.json, under the names of this project. A field that the families differ in has
// the value of Qwen3.
struct DenseShape {
  std::string family;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  RopeSpec rope = {.theta = 1e6};  // of all layers
  bool tie_word_embeddings = false;
  bool has_qk_norm = true;
  bool has_output_norms = false;  // of attention and MLP, in Gemma's names
  bool has_qkv_bias = false;
  bool has_o_bias = false;
  bool has_mlp_bias = false;
  Activation activation = Activation::kSilu;
  std::vector<int64_t> windows;  // of attention, by layer; empty: all 0
  std::vector<int64_t> eos_token_ids;
};

// Returns the spec with its tables, in the names that HF uses for these families. A family that
// differs by layer changes the layers afterwards.
DecoderSpec DenseDecoder(const DenseShape& shape);

}  // namespace lathe::worker
