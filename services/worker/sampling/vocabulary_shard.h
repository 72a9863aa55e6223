// Logits whose columns lie on several ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/row_distribution.h"

namespace lathe::worker {

// The columns that this rank has of a row of logits: those of its own tokens, then its padding, of
// -inf.
struct VocabularyShard {
  Shard own;
  int64_t whole_size = 0;
  RankGroup tp;
};

inline VocabularyShard VocabularyOf(const Model& model) {
  return {.own = model.part().vocabulary, .whole_size = model.spec().vocab_size, .tp = model.tp()};
}

// Each rank's logits [n, own], the same number everywhere -> [n, whole_size] of all.
at::Tensor WholeRows(std::string_view name, const at::Tensor& logits,
                     const VocabularyShard& vocabulary);

// Columns of the own tokens of a row on the host.
inline std::span<const float> OwnTokens(const at::Tensor& logits, int64_t row,
                                        const VocabularyShard& vocabulary) {
  return {logits.const_data_ptr<float>() + row * logits.stride(0),
          static_cast<size_t>(vocabulary.own.size)};
}

// DistributionOf, of some columns. A rank may have none that is more than -inf: its sum is then 0.
RowDistribution DistributionOfPart(std::span<const float> logits, double temperature,
                                   std::span<float> weights);

// Of the row whose parts' distributions these are, of one temperature and in the order of the
// ranks. A NaN, or a logit of +inf, of any part leaves no finite sum.
RowDistribution Merge(std::span<const RowDistribution> parts);

// What rank r made its numbers of: [world · n], rank by rank. `T` is plain memory; every rank has
// equally many. `device` is the one that the ranks' tensors lie on.
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

// A token that may be among the most likely of its row.
struct TopCandidate {
  int32_t token = 0;
  float logit = 0;
};

// A rank's `k` most likely tokens; where it has fewer, what is less likely than any token follows.
// No logit is NaN.
std::vector<TopCandidate> TopCandidates(std::span<const float> own_logits,
                                        const VocabularyShard& vocabulary, int64_t k);

// The `k` most likely of all ranks' candidates, in order; of equals the lower id first.
std::vector<TopCandidate> MostLikely(std::vector<TopCandidate> candidates, int64_t k);

}  // namespace lathe::worker
