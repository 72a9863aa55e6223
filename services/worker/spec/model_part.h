// A tensor-parallel rank's part of a model. Free of torch.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "services/worker/spec/decoder_spec.h"
#include "services/worker/spec/shard.h"

namespace lathe::worker {

// Sharding of a decoder along axis tp. Source: Megatron-LM (arXiv:1909.08053) section 3. The table
// of linears says what is cut. Queries are on the rank of their keys and values. With more ranks
// than KV heads, adjacent ranks hold the same head. Embedding and head are cut by tokens, tied or
// not. Vectors are whole, and so is the bias of a linear whose inputs are cut.
struct ModelPart {
  // Spec of the whole model.
  DecoderSpec whole;
  // Spec with this rank's heads, KV heads, intermediate size and padded vocabulary, for sizing
  // memory. The same on every rank.
  DecoderSpec local;
  TpPlace place;
  Shard vocabulary;  // token ids; padded
  // Number of adjacent ranks that hold the same KV heads.
  int64_t num_kv_replicas = 1;
};

// One side of a linear on a rank.
struct LinearSide {
  Shard features;
  int64_t whole_features = 0;
  // Number of adjacent ranks that hold the same features.
  int64_t num_holders = 1;
};
LinearSide InputsOf(const ModelPart& part, const LinearSpec& linear);
LinearSide OutputsOf(const ModelPart& part, const LinearSpec& linear);

// Returns the part that is the whole model, on one rank.
inline ModelPart WholeModel(const DecoderSpec& spec) {
  return {.whole = spec, .local = spec, .vocabulary = {.size = spec.vocab_size}};
}

// Returns the part of rank `place`; with one rank, WholeModel. InvalidArgument names a field of
// config.json that cannot be divided.
absl::StatusOr<ModelPart> ShardModel(const DecoderSpec& spec, const TpPlace& place);

}  // namespace lathe::worker
