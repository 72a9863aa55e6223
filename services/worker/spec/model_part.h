// Shape of a base model, and a tensor-parallel rank's part of it. Free of torch.
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

// A rank's place on axis tp, along which a model's tensors are sharded: `index` in [0, size).
struct TpPlace {
  int64_t index = 0;
  int64_t size = 1;  // 1: every tensor is whole
};

// Positions [begin, begin + size) of one dimension, followed by `padding` positions that hold zero
// and exist in no file. The padding gives all ranks the same size.
struct Shard {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t padding = 0;
  int64_t padded_size() const { return size + padding; }
};

// Sharding of a decoder along axis tp. Source: Megatron-LM (arXiv:1909.08053) section 3.
//
//   q_proj, its bias                     rows of `queries`
//   k_proj, v_proj, their biases         rows of `keys`
//   o_proj                               columns of `queries`; outputs are sums over the ranks
//   gate_proj, up_proj                   rows of `intermediate`
//   down_proj                            columns of `intermediate`; same
//   embed_tokens, lm_head                rows of `vocabulary`, tied or not
//   norms, q_norm, k_norm, o_proj's bias whole
//
// Queries are on the rank of their keys and values. With more ranks than KV heads, adjacent ranks
// hold the same head.
struct ModelPart {
  // Spec of the whole model.
  ModelSpec whole;
  // Spec with this rank's heads, KV heads, intermediate size and padded vocabulary, for sizing
  // memory. The same on every rank.
  ModelSpec local;
  TpPlace place;
  Shard queries;       // heads · head_dim
  Shard keys;          // KV heads · head_dim
  Shard intermediate;  // neurons of the MLP
  Shard vocabulary;    // token ids; padded
  // Number of adjacent ranks that hold the same KV heads.
  int64_t num_kv_replicas = 1;
};

// Returns the part that is the whole model, on one rank.
inline ModelPart WholeModel(const ModelSpec& spec) {
  return {.whole = spec,
          .local = spec,
          .place = {},
          .queries = {.size = spec.num_heads * spec.head_dim},
          .keys = {.size = spec.num_kv_heads * spec.head_dim},
          .intermediate = {.size = spec.intermediate_size},
          .vocabulary = {.size = spec.vocab_size}};
}

}  // namespace lathe::worker
