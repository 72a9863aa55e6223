// Logits with columns sharded over several ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "services/worker/models/model.h"
#include "services/worker/sampling/sampler/row_distribution.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// This rank's columns of a row of logits: its own tokens, then padding of -inf.
struct VocabularyShard {
  Shard own;
  int64_t whole_size = 0;
  RankGroup tp;
};

inline VocabularyShard VocabularyOf(const Model& model) {
  return {.own = model.part().vocabulary, .whole_size = model.spec().vocab_size, .tp = model.tp()};
}

// All-gathers logits [n, own], n equal on all ranks, to [n, whole_size].
at::Tensor WholeRows(std::string_view name, const at::Tensor& logits,
                     const VocabularyShard& vocabulary);

// Returns the columns of this rank's own tokens of a row on the host.
inline std::span<const float> OwnTokens(const at::Tensor& logits, int64_t row,
                                        const VocabularyShard& vocabulary) {
  return {logits.const_data_ptr<float>() + row * logits.stride(0),
          static_cast<size_t>(vocabulary.own.size)};
}

// DistributionOf over a part of the columns. If all are -inf the sum is 0.
RowDistribution DistributionOfPart(std::span<const float> logits, double temperature,
                                   std::span<float> weights);

// Merges the distributions of a row's parts, with equal temperature and in rank order. A NaN or
// +inf logit in any part makes the sum not finite.
RowDistribution Merge(std::span<const RowDistribution> parts);

// All-gathers every rank's `own` to [world · n], in rank order. `T` must be trivially copyable, and
// n equal on all ranks. `device` is the device of the ranks' tensors.
template <typename T>
std::vector<T> GatherAll(const RankGroup& tp, std::string_view name, const std::vector<T>& own,
                         at::Device device = at::kCPU) {
  const auto num_bytes = own.size() * sizeof(T);
  at::Tensor bytes = at::empty({static_cast<int64_t>(num_bytes)}, at::kByte);
  if (num_bytes > 0) std::memcpy(bytes.mutable_data_ptr(), own.data(), num_bytes);
  const at::Tensor all = tp.Gather(name, bytes.to(device)).to(at::kCPU);
  std::vector<T> gathered(own.size() * tp.world());
  if (num_bytes > 0) std::memcpy(gathered.data(), all.const_data_ptr(), all.nbytes());
  return gathered;
}

// Candidate for the top-k tokens of a row.
struct TopCandidate {
  int32_t token = 0;
  float logit = 0;
};

// Returns this rank's `k` most likely tokens. If it has fewer, placeholders less likely than any
// token follow. No logit may be NaN.
std::vector<TopCandidate> TopCandidates(std::span<const float> own_logits,
                                        const VocabularyShard& vocabulary, int64_t k);

// Returns the `k` most likely of all ranks' candidates, in order; ties favor the lower id.
std::vector<TopCandidate> MostLikely(std::vector<TopCandidate> candidates, int64_t k);

}  // namespace lathe::worker
