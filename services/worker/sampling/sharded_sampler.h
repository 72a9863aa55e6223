// DrawTokens from logits whose columns lie on several ranks.
#pragma once

#include <span>

#include "services/worker/aten.h"
#include "services/worker/sampling/sampler.h"
#include "services/worker/sampling/vocabulary_shard.h"

namespace lathe::worker {

// DrawTokens of the whole rows, of which `logits` [n, own] are this rank's columns. All ranks call
// it with the same draws and get the same, to the bit: each merges the same numbers in the same
// order. Against one rank that has everything, sums are rounded elsewhere.
//
// On a CPU each rank races its own tokens, and only the winners are exchanged; draws with a filter,
// which asks for the whole distribution, gather their rows. On a GPU all rows are gathered: that
// takes it less time than one layer.
// Collectives on tp, in order: all-gather of rows, all-gather of parts, all-gather of most likely
// tokens; those of which no draw needs any do not take place.
DrawnTokens DrawTokens(const at::Tensor& logits, std::span<const Draw> draws,
                       const VocabularyShard& vocabulary);

}  // namespace lathe::worker
