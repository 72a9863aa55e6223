// Gathers whole adapters from the ranks' parts on the first rank, for files.
//
// All ranks of the group make the same calls.
#pragma once

#include <cstdint>
#include <memory>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Fills `whole` [NumAdapterParameters of the whole model] fp32 on the CPU of rank 0 of tp from the
// ranks' `flat`, which are weights or a moment. `whole` is ignored on other ranks.
void GatherWhole(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora,
                 const RankGroup& tp, const at::Tensor& whole);

// Inverse of GatherWhole: returns this rank's part of `whole`, [NumAdapterParameters of `model`]
// fp32 on the CPU. Returns `whole` itself if the model is not sharded.
at::Tensor PartOfWhole(const at::Tensor& whole, const ModelPart& model, const LoraSpec& lora);

// Returns the whole weights on the CPU of rank 0 of tp, nullptr on other ranks. Returns `weights`
// themselves if there is one rank.
std::shared_ptr<const AdapterWeights> GatherWeights(std::shared_ptr<const AdapterWeights> weights,
                                                    const ModelPart& model, const RankGroup& tp);

// Number of gradient shares of `matrix` over all ranks. Shares stay separate while an accumulation
// window is open, because their sum depends on the order of additions. A buffer of shares has the
// matrices in the order of AdapterLayout. A matrix has NumShares() whole shares [lora_rank,
// features], ordered by data rank, then by tp rank among holders of the same part. With one rank
// this is its flat buffer.
int64_t NumShares(const AdapterMatrix& matrix, int64_t num_data_ranks);
// Index of this rank's share among the NumShares() shares.
int64_t ShareIndex(const AdapterMatrix& matrix, int64_t tp_index, int64_t data_rank);

// Fills `shares` [number of data ranks · AdapterSizes::shares] fp32 on the CPU of rank 0 of
// `ranks.all`.
void GatherShares(const at::Tensor& gradient, const ModelPart& model, const LoraSpec& lora,
                  const RankGroups& ranks, const at::Tensor& shares);

}  // namespace lathe::worker
