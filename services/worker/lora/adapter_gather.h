// Whole adapters out of the parts that ranks hold, on the first rank, for files.
//
// All ranks of the group make the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "services/worker/aten.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// Fills `whole` [NumAdapterParameters of the whole model] fp32 on the CPU of rank 0 of tp with what
// lies in the ranks' `flat`, weights or a moment. Other ranks' `whole` is not looked at.
void GatherWhole(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora,
                 const RankGroup& tp, const at::Tensor& whole);

// What this rank holds of `whole`, as GatherWhole fills it: [NumAdapterParameters of `model`] fp32
// on the CPU. Of one rank alone `whole` itself.
at::Tensor PartOfWhole(const at::Tensor& whole, const ModelPart& model, const LoraSpec& lora);

// The adapter without its accumulator, on the CPU; nullopt: another rank has it.
std::optional<Adapter> GatherAdapter(const Adapter& adapter, const RankGroup& tp);

// As one rank has them, on the CPU; nullptr: another rank has them. Of one rank alone `weights`
// themselves.
std::shared_ptr<const AdapterWeights> GatherWeights(std::shared_ptr<const AdapterWeights> weights,
                                                    const ModelPart& model, const RankGroup& tp);

// Ranks accumulate shares of a gradient. They are kept apart while a window is open, because their
// sum depends on the order of additions: matrix by matrix, as AdapterLayout has them, the
// NumShares() shares of each follow each other, whole ones [lora_rank, features], in the order of
// data ranks and then of ranks of tp that hold the same. Of one rank that is its flat buffer.
int64_t NumShares(const AdapterMatrix& matrix, int64_t num_data_ranks);
// Which of them is this rank's.
int64_t ShareIndex(const AdapterMatrix& matrix, int64_t tp_index, int64_t data_rank);

// Fills `shares` [number of data ranks · AdapterSizes::shares] fp32 on the CPU of rank 0 of all.
void GatherShares(const at::Tensor& gradient, const ModelPart& model, const LoraSpec& lora,
                  const RankGroups& ranks, const at::Tensor& shares);

}  // namespace lathe::worker
