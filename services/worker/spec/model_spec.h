// Shape of a base model, from its config.json. Free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::worker {

// The supported fields of an HF config.json. The loader rejects all others.
struct ModelSpec {
  std::string family;  // "qwen3"
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e6;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  std::vector<int64_t> eos_token_ids;  // generation_config.json, else config.json
};

}  // namespace lathe::worker
