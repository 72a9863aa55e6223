#include "services/worker/training/rank_sums.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {
namespace {

// 32 MiB: limits a rank's extra memory and keeps a collective far below its deadline.
constexpr int64_t kBucketNumbers = int64_t{8} << 20;
// Fewer numbers do not pay for another thread.
constexpr int64_t kGrainNumbers = int64_t{1} << 18;

template <typename F>
void ForBuckets(const at::Tensor& flat, const F& run) {
  for (int64_t begin = 0; begin < flat.numel(); begin += kBucketNumbers) {
    run(flat.narrow(0, begin, std::min(kBucketNumbers, flat.numel() - begin)));
  }
}

// Sums over the adjacent ranks that hold the same part, in rank order.
void SumOverHolders(const at::Tensor& bucket, int64_t num_holders, const RankGroup& tp) {
  const at::Tensor shares = tp.Gather("shared gradients", bucket);
  const int64_t first = tp.rank() / num_holders * num_holders;
  bucket.copy_(shares[first]);
  for (int64_t i = 1; i < num_holders; ++i) bucket.add_(shares[first + i]);
}

bool IsFirstHolder(const ModelPart& part) { return part.place.index % part.num_kv_replicas == 0; }

// Returns this rank's contribution to the sum over tp, so that no number counts twice. Range 0 is
// left out here: every rank holds it, and the caller adds it locally.
double OwnSum(const PerRange<double>& sums, const ModelPart& part) {
  return sums[2] + (IsFirstHolder(part) ? sums[1] : 0.0);
}

// Returns a digest that changes with any weight's bits. Comparable only on the same kind of device.
int64_t DigestOf(const at::Tensor& weights) {
  if (!weights.is_cpu()) {
    int64_t digest = 0;
    ForBuckets(weights, [&](const at::Tensor& bucket) {
      const at::Tensor bits = bucket.view(at::kInt).to(at::kLong);
      digest += bits.mul(bits).sum().item<int64_t>();
    });
    return digest;
  }
  const auto* values = weights.const_data_ptr<float>();
  std::atomic<uint64_t> digest = 0;  // integer sums do not depend on thread order
  ForParts(weights.numel(), kGrainNumbers, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t bits = std::bit_cast<int32_t>(values[i]);
      sum += static_cast<uint64_t>(bits * bits);
    }
    digest += sum;
  });
  return static_cast<int64_t>(digest.load());
}

// Returns the first rank that holds the same part of a range as rank `rank` of `all`.
int64_t FirstWithTheSame(size_t range, int64_t rank, const ModelPart& part) {
  const int64_t tp_rank = rank % part.place.size;
  if (range == 0) return 0;
  return range == 1 ? tp_rank / part.num_kv_replicas * part.num_kv_replicas : tp_rank;
}

// The message that each rank sends to the others after a step.
struct StepNote {
  double own_sum = 0;
  PerRange<int64_t> digests{};

  std::vector<int64_t> ToWords() const {
    return {std::bit_cast<int64_t>(own_sum), digests[0], digests[1], digests[2]};
  }
  static StepNote FromWords(const int64_t* words) {
    return {std::bit_cast<double>(words[0]), {words[1], words[2], words[3]}};
  }
};

std::vector<StepNote> Exchange(const StepNote& own, const RankGroup& all) {
  const at::Tensor words = all.Gather("adapter after step", at::tensor(own.ToWords(), at::kLong));
  std::vector<StepNote> notes;
  for (int64_t rank = 0; rank < words.size(0); ++rank) {
    notes.push_back(StepNote::FromWords(words[rank].const_data_ptr<int64_t>()));
  }
  return notes;
}

void CheckSame(const std::vector<StepNote>& notes, const ModelPart& part,
               std::string_view adapter_name) {
  std::vector<std::string> differ;
  for (size_t rank = 0; rank < notes.size(); ++rank) {
    for (size_t range = 0; range < notes[rank].digests.size(); ++range) {
      const int64_t other = FirstWithTheSame(range, static_cast<int64_t>(rank), part);
      if (notes[rank].digests[range] == notes[other].digests[range]) continue;
      differ.push_back(absl::StrFormat("%d from %d", rank, other));
      break;
    }
  }
  if (differ.empty()) return;
  throw RanksDisagree{absl::InternalError(absl::StrFormat(
      "%s: ranks hold different weights: %s", adapter_name, absl::StrJoin(differ, ", ")))};
}

}  // namespace

void SumGradients(Adapter& adapter, const RankGroups& ranks) {
  const AdapterSizes& sizes = adapter.sizes();
  ForBuckets(adapter.gradient.narrow(0, 0, sizes.summed),
             [&](const at::Tensor& bucket) { ranks.tp.Sum("gradients", bucket); });
  ForBuckets(adapter.gradient.narrow(0, sizes.summed, sizes.shared), [&](const at::Tensor& bucket) {
    SumOverHolders(bucket, adapter.model().num_kv_replicas, ranks.tp);
  });
  if (ranks.data.is_alone()) return;
  ForBuckets(adapter.gradient,
             [&](const at::Tensor& bucket) { ranks.data.Sum("data gradients", bucket); });
}

double SumOverRanks(const PerRange<double>& sums, const Adapter& adapter, const RankGroup& tp) {
  const double own_sum = OwnSum(sums, adapter.model());
  if (tp.is_alone()) return sums[0] + own_sum;  // without a round trip to a GPU
  const at::Tensor own = at::full({}, own_sum, at::kDouble);
  const at::Tensor all = tp.Gather("adapter sums", own.to(adapter.gradient.device())).cpu();
  double total = sums[0];
  for (int64_t rank = 0; rank < all.numel(); ++rank) total += all.const_data_ptr<double>()[rank];
  return total;
}

double SumOverRanksAfterStep(const PerRange<double>& sums, const Adapter& adapter,
                             std::string_view adapter_name, const RankGroups& ranks) {
  const ModelPart& part = adapter.model();
  StepNote own{.own_sum = OwnSum(sums, part)};
  if (ranks.all.is_alone()) return sums[0] + own.own_sum;
  own.digests = OfRanges<int64_t>(adapter.sizes(), [&](int64_t begin, int64_t size) {
    return DigestOf(adapter.parameters().narrow(0, begin, size));
  });
  const std::vector<StepNote> notes = Exchange(own, ranks.all);
  CheckSame(notes, part, adapter_name);
  double total = sums[0];
  for (int64_t tp_rank = 0; tp_rank < ranks.tp.world(); ++tp_rank) {
    total += notes[ranks.data.rank() * ranks.tp.world() + tp_rank].own_sum;
  }
  return total;
}

}  // namespace lathe::worker
