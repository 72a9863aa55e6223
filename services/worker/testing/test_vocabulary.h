// Logits with columns sharded over several ranks, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/sampling/sampler/vocabulary_shard.h"
#include "services/worker/testing/test_ranks.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Shards the vocabulary as a model does: equal parts of a multiple of 4, the last ones padded.
inline VocabularyShard TestVocabulary(int64_t vocab_size, const RankGroup& tp) {
  if (tp.is_alone()) return {.own = {.size = vocab_size}, .whole_size = vocab_size};
  const int64_t unit = 4 * tp.world();
  const int64_t padded_size = (vocab_size + unit - 1) / unit * 4;
  const int64_t begin = tp.rank() * padded_size;
  const int64_t size = std::min(padded_size, vocab_size - begin);
  return {.own = {.begin = begin, .size = size, .padding = padded_size - size},
          .whole_size = vocab_size,
          .tp = tp};
}

// Selects this rank's columns: [n, whole_size] -> [n, own].
inline at::Tensor ColumnsOf(const at::Tensor& logits, const VocabularyShard& vocabulary) {
  const Shard& own = vocabulary.own;
  const at::Tensor padding =
      at::full({logits.size(0), own.padding}, -std::numeric_limits<float>::infinity());
  return at::cat({logits.narrow(1, own.begin, own.size), padding}, 1);
}

}  // namespace lathe::worker
