#include "services/worker/spec/model_part.h"

#include <algorithm>

#include <absl/status/status.h>
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

// Returns a side that every rank of axis tp holds whole.
LinearSide Whole(const ModelPart& part, int64_t features) {
  return {
      .features = {.size = features}, .whole_features = features, .num_holders = part.place.size};
}

LinearSide CutSide(const ModelPart& part, const LinearSpec& linear, int64_t features) {
  if (linear.axis == CutAxis::kVocabulary) {
    return {.features = part.vocabulary, .whole_features = features};
  }
  const int64_t num_holders = linear.axis == CutAxis::kKeys ? part.num_kv_replicas : 1;
  const int64_t size = features * num_holders / part.place.size;
  return {.features = {.begin = part.place.index / num_holders * size, .size = size},
          .whole_features = features,
          .num_holders = num_holders};
}

}  // namespace

LinearSide InputsOf(const ModelPart& part, const LinearSpec& linear) {
  return linear.cut == TpCut::kColumns ? CutSide(part, linear, linear.in_features)
                                       : Whole(part, linear.in_features);
}

LinearSide OutputsOf(const ModelPart& part, const LinearSpec& linear) {
  return linear.cut == TpCut::kRows ? CutSide(part, linear, linear.out_features)
                                    : Whole(part, linear.out_features);
}

absl::StatusOr<ModelPart> ShardModel(const DecoderSpec& spec, const TpPlace& place) {
  const int64_t tp = place.size;
  ModelPart part{.whole = spec, .local = spec, .place = place};
  for (LayerSpec& layer : part.local.layers) {
    AttentionSpec& attention = layer.attention;
    RETURN_IF_ERROR(CheckDivides("num_attention_heads", attention.num_heads, tp));
    RETURN_IF_ERROR(CheckKvHeads(attention.num_kv_heads, tp));
    RETURN_IF_ERROR(CheckDivides("intermediate_size", layer.intermediate_size, tp));
    part.num_kv_replicas = std::max<int64_t>(1, tp / attention.num_kv_heads);
    attention.num_heads /= tp;
    attention.num_kv_heads = attention.num_kv_heads * part.num_kv_replicas / tp;
    layer.intermediate_size /= tp;
  }
  ASSIGN_OR_RETURN(part.vocabulary, VocabularyPart(spec.vocab_size, place));
  part.local.vocab_size = part.vocabulary.padded_size();
  return part;
}

}  // namespace lathe::worker
