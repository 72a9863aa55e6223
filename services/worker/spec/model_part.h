// A tensor-parallel rank's part of a base model. Free of torch.
#pragma once

#include <cstdint>

#include "services/worker/spec/model_spec.h"
#include "services/worker/spec/shard.h"

namespace lathe::worker {

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
