// SampleTokens for logits whose columns are sharded over several ranks.
#pragma once

#include <span>

#include "services/worker/sampling/sampler/sampler.h"
#include "services/worker/sampling/sampler/vocabulary_shard.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Draws from whole rows, of which `logits` [n, own] are this rank's columns. All ranks call it with
// the same draws and get the same result, to the bit: each merges the same numbers in the same
// order. Against a single rank with all columns, sums round differently.
//
// On a CPU each rank samples by Gumbel-max among its own tokens, and only the winners are
// exchanged. Draws with a filter need the whole distribution, so their rows are gathered. On a GPU
// all rows are gathered, which takes less time than one layer.
// Collectives on tp, in order: all-gather of rows, of parts, of top-k tokens. A collective that no
// draw needs is skipped.
TokenSamples SampleTokens(const at::Tensor& logits, std::span<const SampleInput> inputs,
                          const VocabularyShard& vocabulary);

}  // namespace lathe::worker
