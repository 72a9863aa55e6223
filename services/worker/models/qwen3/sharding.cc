#include "services/worker/models/qwen3/sharding.h"

#include <algorithm>

#include <absl/strings/str_format.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Number of tokens that share a block of random bits (sampling_kernel.h). A rank's part is a
// multiple, so no block belongs to two ranks.
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

// Returns part `index` of `count` equal parts.
Shard EqualPart(int64_t whole, int64_t index, int64_t count) {
  const int64_t size = whole / count;
  return {.begin = index * size, .size = size};
}

// Returns a rank's part of the vocabulary. A rank needs a token, because an empty row has no
// maximum.
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

absl::StatusOr<ModelPart> ShardQwen3(const ModelSpec& spec, const TpPlace& place) {
  RETURN_IF_ERROR(CheckDivides("num_attention_heads", spec.num_heads, place.size));
  RETURN_IF_ERROR(CheckKvHeads(spec.num_kv_heads, place.size));
  RETURN_IF_ERROR(CheckDivides("intermediate_size", spec.intermediate_size, place.size));
  ModelPart part{.whole = spec, .local = spec, .place = place};
  part.num_kv_replicas = std::max<int64_t>(1, place.size / spec.num_kv_heads);
  part.queries = EqualPart(spec.num_heads * spec.head_dim, place.index, place.size);
  part.keys = EqualPart(spec.num_kv_heads * spec.head_dim, place.index / part.num_kv_replicas,
                        place.size / part.num_kv_replicas);
  part.intermediate = EqualPart(spec.intermediate_size, place.index, place.size);
  ASSIGN_OR_RETURN(part.vocabulary, VocabularyPart(spec.vocab_size, place));
  part.local.num_heads = part.queries.size / spec.head_dim;
  part.local.num_kv_heads = part.keys.size / spec.head_dim;
  part.local.intermediate_size = part.intermediate.size;
  part.local.vocab_size = part.vocabulary.padded_size();
  return part;
}

}  // namespace lathe::worker
