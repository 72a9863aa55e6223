// How the tensors of a Qwen3 dense model are cut along axis tp. Free of torch.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "services/worker/models/model_spec.h"
#include "services/worker/models/shard.h"

namespace lathe::worker {

// Source: Megatron-LM (arXiv:1909.08053) section 3.
//
//   q_proj, its bias                     rows of `queries`
//   k_proj, v_proj, their biases         rows of `keys`
//   o_proj                               columns of `queries`; outputs are sums over the ranks
//   gate_proj, up_proj                   rows of `intermediate`
//   down_proj                            columns of `intermediate`; same
//   embed_tokens, lm_head                rows of `vocabulary`, tied or not
//   norms, q_norm, k_norm, o_proj's bias whole
//
// Queries lie where their keys and values are. With more ranks than KV heads, neighbours hold the
// same head.
struct Qwen3Shards {
  Shard queries;       // heads · head_dim
  Shard keys;          // KV heads · head_dim
  Shard intermediate;  // neurons of the MLP
  Shard vocabulary;    // token ids; padded
  // Ranks, side by side, that hold the same KV heads.
  int64_t num_kv_replicas = 1;
  // The model as this rank holds it: its heads, KV heads, intermediate size and padded vocabulary.
  // The same on every rank.
  ModelSpec local;
};

// InvalidArgument naming a field of `spec` that cannot be cut so. Of one rank every tensor is
// whole, and `local` is `spec`.
absl::StatusOr<Qwen3Shards> ShardQwen3(const ModelSpec& spec, const TpPlace& place);

}  // namespace lathe::worker
