#include "services/worker/sampling/sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/sampling/sampler/top_filter.h"
#include "services/worker/sampling/sampler/vocabulary_shard.h"

namespace lathe::worker {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();

// One rank's contribution to the draw from one row.
struct RowPart {
  RowDistribution distribution;
  // Time, logit and id of the rank's best token. At temperature 0 this is the first token with the
  // largest logit, otherwise the Gumbel-max winner among the rank's own tokens.
  float time = kNever;
  float logit = 0;
  int32_t token = 0;
};

bool NeedsWholeRow(const SampleInput& input) {
  return input.params->temperature != 0 && HasTopFilter(*input.params);
}

// Some rows of a tensor of logits, with their draws.
struct SampleInputs {
  std::vector<int64_t> rows;  // ascending
  std::vector<SampleInput> inputs;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  void Add(int64_t row, const SampleInput& input) {
    rows.push_back(row);
    inputs.push_back(input);
  }
  at::Tensor Of(const at::Tensor& logits) const {
    return size() == logits.size(0) ? logits : logits.index_select(0, at::tensor(rows, at::kLong));
  }
};

// `weights` is scratch space of one number per token.
RowPart PartOf(std::span<const float> logits, const SampleInput& input, int64_t first_token,
               std::span<float> weights) {
  const SamplingParams& params = *input.params;
  RowPart part{.distribution = DistributionOfPart(logits, params.temperature, weights)};
  // No token is drawn if all logits are -inf, or if one is NaN or +inf.
  if (!part.distribution.is_finite()) return part;
  GumbelMaxResult winner;
  if (params.temperature == 0) {
    winner.token = first_token + FirstOf(logits, part.distribution.max);
  } else {
    winner = GumbelMax(weights,
                       {.seed = params.seed,
                        .sample_index = static_cast<uint32_t>(input.sample_index),
                        .position = static_cast<uint32_t>(input.position)},
                       first_token);
  }
  part.time = winner.time;
  part.logit = logits[winner.token - first_token];
  part.token = static_cast<int32_t>(winner.token);
  return part;
}

std::vector<RowPart> PartsOf(const at::Tensor& logits, const std::vector<SampleInput>& inputs,
                             const VocabularyShard& vocabulary) {
  std::vector<RowPart> parts(inputs.size());
  constexpr int64_t kGrainLogits = 16384;  // minimum per thread
  const int64_t grain = std::max<int64_t>(1, kGrainLogits / logits.size(1));
  ForParts(logits.size(0), grain, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(vocabulary.own.size);
    for (int64_t row = begin; row < end; ++row) {
      parts[row] =
          PartOf(OwnTokens(logits, row, vocabulary), inputs[row], vocabulary.own.begin, weights);
    }
  });
  return parts;
}

// Returns the rank that has the winning token. Ranks hold ascending ids, so a tie goes to the lower
// rank, as it goes to the lower id in a whole row.
size_t WinnerOf(std::span<const RowPart> parts, const RowDistribution& row, bool is_greedy) {
  size_t winner = 0;
  double best = kNever;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const RowDistribution& part = parts[rank].distribution;
    if (!part.is_finite()) continue;
    // A part's weights are relative to its own largest logit, and times are inversely proportional
    // to weights. Rescaling makes times of different parts comparable.
    const double behind = static_cast<double>(row.max) - part.max;
    const double time =
        is_greedy ? behind : parts[rank].time * std::exp(behind * row.inverse_temperature);
    if (!(time < best)) continue;
    best = time;
    winner = rank;
  }
  return winner;
}

// Appends one row to `top`. `candidates` holds top.k tokens of each rank.
void AppendTop(const std::vector<TopCandidate>& candidates, const RowDistribution& row,
               int64_t vocab_size, TopkLogprobs& top) {
  const auto begin = static_cast<size_t>(top.length++ * top.k);
  top.token_ids.resize(begin + top.k, kNoTopToken);
  top.logprobs.resize(begin + top.k, kNoTopLogprob);
  if (!row.is_finite()) return;
  const int64_t count = std::min(top.k, vocab_size);
  const std::vector<TopCandidate> most_likely = MostLikely(candidates, count);
  for (int64_t i = 0; i < count; ++i) {
    top.token_ids[begin + i] = most_likely[i].token;
    top.logprobs[begin + i] = row.Logprob(most_likely[i].logit);
  }
}

// Appends a row of top-k tokens for each draw that requests one.
void AppendTops(const at::Tensor& logits, const std::vector<SampleInput>& inputs,
                const std::vector<RowPart>& parts, const std::vector<RowDistribution>& rows,
                const VocabularyShard& vocabulary) {
  std::vector<TopCandidate> own;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].top == nullptr) continue;
    std::vector<TopCandidate> candidates(inputs[i].top->k);
    // If the sum is NaN, the merged row is not finite either, so its candidates are never read.
    if (!std::isnan(parts[i].distribution.sum)) {
      candidates = TopCandidates(OwnTokens(logits, static_cast<int64_t>(i), vocabulary), vocabulary,
                                 inputs[i].top->k);
    }
    own.insert(own.end(), candidates.begin(), candidates.end());
  }
  if (own.empty()) return;
  const std::vector<TopCandidate> all = GatherAll(vocabulary.tp, "draws.top", own);
  size_t begin = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].top == nullptr) continue;
    const auto k = static_cast<size_t>(inputs[i].top->k);
    std::vector<TopCandidate> candidates;
    for (size_t from = begin; from < all.size(); from += own.size()) {
      candidates.insert(candidates.end(), all.begin() + from, all.begin() + from + k);
    }
    AppendTop(candidates, rows[i], vocabulary.whole_size, *inputs[i].top);
    begin += k;
  }
}

TokenSamples SampleByParts(const at::Tensor& logits, const std::vector<SampleInput>& inputs,
                           const VocabularyShard& vocabulary) {
  const std::vector<RowPart> own = PartsOf(logits, inputs, vocabulary);
  const std::vector<RowPart> all = GatherAll(vocabulary.tp, "draws", own);
  TokenSamples sampled{
      .tokens = std::vector<int32_t>(inputs.size()),
      .logprobs = std::vector<float>(inputs.size(), std::numeric_limits<float>::quiet_NaN())};
  std::vector<RowDistribution> rows;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<RowPart> parts;
    std::vector<RowDistribution> distributions;
    for (size_t from = i; from < all.size(); from += inputs.size()) {
      parts.push_back(all[from]);
      distributions.push_back(all[from].distribution);
    }
    const RowDistribution& row = rows.emplace_back(Merge(distributions));
    if (!row.is_finite()) continue;
    const RowPart& winner = parts[WinnerOf(parts, row, inputs[i].params->temperature == 0)];
    sampled.tokens[i] = winner.token;
    sampled.logprobs[i] = row.Logprob(winner.logit);
  }
  AppendTops(logits, inputs, own, rows, vocabulary);
  return sampled;
}

}  // namespace

TokenSamples SampleTokens(const at::Tensor& logits, std::span<const SampleInput> inputs,
                          const VocabularyShard& vocabulary) {
  if (vocabulary.tp.is_alone()) return SampleTokens(logits, inputs);
  if (!logits.is_cpu()) return SampleTokens(WholeRows("draws.rows", logits, vocabulary), inputs);
  SampleInputs of_whole_rows;
  SampleInputs of_parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    (NeedsWholeRow(inputs[i]) ? of_whole_rows : of_parts).Add(static_cast<int64_t>(i), inputs[i]);
  }
  TokenSamples sampled{.tokens = std::vector<int32_t>(inputs.size()),
                       .logprobs = std::vector<float>(inputs.size())};
  const auto place = [&](const SampleInputs& some, const TokenSamples& theirs) {
    for (int64_t i = 0; i < some.size(); ++i) {
      sampled.tokens[some.rows[i]] = theirs.tokens[i];
      sampled.logprobs[some.rows[i]] = theirs.logprobs[i];
    }
  };
  if (of_whole_rows.size() > 0) {
    place(of_whole_rows, SampleTokens(WholeRows("draws.rows", of_whole_rows.Of(logits), vocabulary),
                                      of_whole_rows.inputs));
  }
  if (of_parts.size() > 0) {
    place(of_parts, SampleByParts(of_parts.Of(logits).contiguous(), of_parts.inputs, vocabulary));
  }
  return sampled;
}

}  // namespace lathe::worker
