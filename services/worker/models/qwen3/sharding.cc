#include "services/worker/models/qwen3/sharding.h"

#include <algorithm>

#include <absl/strings/str_format.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// One block of random bits is for so many tokens (draw_kernel.h): none is for two ranks.
constexpr int64_t kVocabularyMultiple = 4;

absl::Status CheckDivides(const char* field, int64_t value, int64_t tp) {
  if (value % tp == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d, not a multiple of tp %d", field, value, tp));
}

absl::Status CheckKvHeads(int64_t num_kv_heads, int64_t tp) {
  if (num_kv_heads % tp == 0 || tp % num_kv_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "num_key_value_heads is %d, neither a multiple nor a divisor of tp %d", num_kv_heads, tp));
}

// Part `index` of `count` equal ones.
Shard EqualPart(int64_t whole, int64_t index, int64_t count) {
  const int64_t size = whole / count;
  return {.begin = index * size, .size = size};
}

// A rank without a token would have no largest logit.
absl::StatusOr<Shard> VocabularyPart(int64_t vocab_size, const TpPlace& place) {
  if (place.size == 1) return Shard{.size = vocab_size};
  const int64_t unit = place.size * kVocabularyMultiple;
  const int64_t padded_size = (vocab_size + unit - 1) / unit * kVocabularyMultiple;
  const int64_t last_begin = (place.size - 1) * padded_size;
  if (last_begin >= vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vocab_size is %d, with tp %d rank %d has the tokens from %d on: none",
                        vocab_size, place.size, place.size - 1, last_begin));
  }
  const int64_t begin = place.index * padded_size;
  const int64_t size = std::min(padded_size, vocab_size - begin);
  return Shard{.begin = begin, .size = size, .padding = padded_size - size};
}

}  // namespace

absl::StatusOr<Qwen3Shards> ShardQwen3(const ModelSpec& spec, const TpPlace& place) {
  RETURN_IF_ERROR(CheckDivides("num_attention_heads", spec.num_heads, place.size));
  RETURN_IF_ERROR(CheckKvHeads(spec.num_kv_heads, place.size));
  RETURN_IF_ERROR(CheckDivides("intermediate_size", spec.intermediate_size, place.size));
  Qwen3Shards shards{.local = spec};
  shards.num_kv_replicas = std::max<int64_t>(1, place.size / spec.num_kv_heads);
  shards.queries = EqualPart(spec.num_heads * spec.head_dim, place.index, place.size);
  shards.keys = EqualPart(spec.num_kv_heads * spec.head_dim, place.index / shards.num_kv_replicas,
                          place.size / shards.num_kv_replicas);
  shards.intermediate = EqualPart(spec.intermediate_size, place.index, place.size);
  ASSIGN_OR_RETURN(shards.vocabulary, VocabularyPart(spec.vocab_size, place));
  shards.local.num_heads = shards.queries.size / spec.head_dim;
  shards.local.num_kv_heads = shards.keys.size / spec.head_dim;
  shards.local.intermediate_size = shards.intermediate.size;
  shards.local.vocab_size = shards.vocabulary.padded_size();
  return shards;
}

}  // namespace lathe::worker
