#include "services/worker/sampling/prompt_scores.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "services/worker/kernels/cpu/alternatives_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/logprobs.h"
#include "services/worker/sampling/vocabulary_shard.h"

namespace lathe::worker {
namespace {

int64_t LengthOf(const SampleRequest& request) {
  return static_cast<int64_t>(request.prompt.size());
}

// First row whose position prompt logprobs and top-k ones cover.
int64_t FirstLogprobRow(const SampleRequest& request) {
  const int64_t last_n = request.prompt_logprobs_last_n;
  return last_n == 0 ? 0 : LengthOf(request) - 1 - last_n;
}

bool NamesTarget(const PromptTargets& targets, int64_t row) {
  const auto begin = targets.tokens.begin();
  return std::any_of(begin + targets.offsets[row], begin + targets.offsets[row + 1],
                     [](int64_t token) { return token >= 0; });
}

// At least one names a target.
int64_t FirstNamedRow(const PromptTargets& targets) {
  const auto first = std::find_if(targets.tokens.begin(), targets.tokens.end(),
                                  [](int64_t token) { return token >= 0; });
  const auto behind = std::upper_bound(targets.offsets.begin(), targets.offsets.end(),
                                       first - targets.tokens.begin());
  return behind - targets.offsets.begin() - 1;
}

bool HasLogprobs(const SampleRequest& request) {
  return request.prompt_logprobs || request.topk_prompt_logprobs > 0;
}

bool IsWanted(const SampleRequest& request, int64_t row) {
  if (request.prompt_alt_tokens_k > 0) return true;
  if (HasLogprobs(request) && row >= FirstLogprobRow(request)) return true;
  return request.targets != nullptr && NamesTarget(*request.targets, row);
}

// Some rows of a prompt and what the head made of them. `logits` may lie on a device, `host` and
// `whole` never.
struct ScoredRows {
  std::vector<int64_t> rows;  // ascending
  VocabularyShard vocabulary;
  at::Tensor logits;   // [n, V] fp32, of this rank
  at::Tensor host;     // the same, defined if wanted
  at::Tensor whole;    // [n, whole_size], of all ranks; same
  SoftmaxStats stats;  // of whole rows

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

// Of each rank's own columns -> of whole rows.
SoftmaxStats MergeStats(const SoftmaxStats& own, const VocabularyShard& vocabulary) {
  const RankGroup& tp = vocabulary.tp;
  if (tp.is_alone()) return own;
  const at::Tensor max = tp.Gather("prompt_scores.max", own.max).to(at::kCPU);
  const at::Tensor sum = tp.Gather("prompt_scores.sum", own.sum).to(at::kCPU);
  const int64_t num_rows = own.max.size(0);
  const SoftmaxStats whole = {.max = at::empty({num_rows}, at::kFloat),
                              .sum = at::empty({num_rows}, at::kDouble)};
  std::vector<RowDistribution> parts(tp.world());
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int rank = 0; rank < tp.world(); ++rank) {
      const int64_t place = rank * num_rows + row;
      parts[rank] = {.max = max.const_data_ptr<float>()[place],
                     .sum = sum.const_data_ptr<double>()[place]};
    }
    const RowDistribution merged = Merge(parts);
    whole.max.mutable_data_ptr<float>()[row] = merged.max;
    whole.sum.mutable_data_ptr<double>()[row] = merged.sum;
  }
  return {.max = whole.max.to(own.max.device()), .sum = whole.sum.to(own.sum.device())};
}

// Each token's logit, on every rank.
at::Tensor LogitsOf(const ScoredRows& scored, const RowTargets& targets) {
  std::vector<int64_t> places;
  std::vector<float> is_own;
  for (int64_t row = 0; row < scored.size(); ++row) {
    for (int64_t i = targets.offsets[row]; i < targets.offsets[row + 1]; ++i) {
      const int64_t column = targets.tokens[i] - scored.vocabulary.own.begin;
      const bool is_here = column >= 0 && column < scored.vocabulary.own.size;
      places.push_back(row * scored.logits.size(1) + (is_here ? column : 0));
      is_own.push_back(is_here ? 1.0f : 0.0f);
    }
  }
  const at::Device device = scored.logits.device();
  at::Tensor picked = scored.logits.reshape(-1).index_select(0, at::tensor(places).to(device));
  // Not by a product: a logit that is not finite is its own rank's alone.
  picked.masked_fill_(at::tensor(is_own).to(device).eq(0), 0);
  // One rank's summand is not zero.
  scored.vocabulary.tp.Sum("prompt_scores.targets", picked);
  return picked.to(at::kCPU);
}

// [E] as TargetLogprobs, of whole rows.
std::vector<float> LogprobsOf(const ScoredRows& scored, const RowTargets& targets) {
  if (scored.vocabulary.tp.is_alone()) {
    return TargetLogprobs(scored.logits, scored.stats, targets);
  }
  if (targets.tokens.empty()) return {};
  const at::Tensor logits = LogitsOf(scored, targets);
  const at::Tensor max = scored.stats.max.to(at::kCPU);
  const at::Tensor sum = scored.stats.sum.to(at::kCPU);
  std::vector<float> logprobs(targets.tokens.size());
  for (int64_t row = 0; row < scored.size(); ++row) {
    const RowDistribution distribution = {.max = max.const_data_ptr<float>()[row],
                                          .sum = sum.const_data_ptr<double>()[row]};
    for (int64_t i = targets.offsets[row]; i < targets.offsets[row + 1]; ++i) {
      logprobs[i] = distribution.Logprob(logits.const_data_ptr<float>()[i]);
    }
  }
  return logprobs;
}

void ScoreOwnTokens(const ScoredRows& scored, const SampleRequest& request,
                    std::vector<float>& out) {
  const int64_t first_row = FirstLogprobRow(request);
  RowTargets own;
  for (const int64_t row : scored.rows) {
    if (row >= first_row) own.tokens.push_back(request.prompt[row + 1]);
    own.offsets.push_back(static_cast<int64_t>(own.tokens.size()));
  }
  const std::vector<float> logprobs = LogprobsOf(scored, own);
  auto next = logprobs.begin();
  for (const int64_t row : scored.rows) {
    if (row >= first_row) out[row + 1] = *next++;
  }
}

// The `k` most likely tokens of each row from `first_row` on.
RowTargets MostLikelyOf(const ScoredRows& scored, int64_t first_row, int64_t k) {
  std::vector<TopCandidate> own(scored.size() * k);
  ForRows(scored.size(), scored.host.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (scored.rows[i] < first_row) continue;
      std::ranges::copy(
          TopCandidates(OwnTokens(scored.host, i, scored.vocabulary), scored.vocabulary, k),
          own.begin() + i * k);
    }
  });
  const std::vector<TopCandidate> all =
      GatherAll(scored.vocabulary.tp, "prompt_scores.top", own, scored.logits.device());
  RowTargets top;
  for (int64_t i = 0; i < scored.size(); ++i) {
    std::vector<TopCandidate> candidates;
    for (size_t from = i * k; from < all.size() && scored.rows[i] >= first_row;
         from += own.size()) {
      candidates.insert(candidates.end(), all.begin() + from, all.begin() + from + k);
    }
    if (!candidates.empty()) candidates = MostLikely(std::move(candidates), k);
    for (const TopCandidate& candidate : candidates) top.tokens.push_back(candidate.token);
    top.offsets.push_back(static_cast<int64_t>(top.tokens.size()));
  }
  return top;
}

void ScoreTop(const ScoredRows& scored, const SampleRequest& request, TopkLogprobs& out) {
  const int64_t k = std::min(out.k, scored.vocabulary.whole_size);
  const RowTargets top = MostLikelyOf(scored, FirstLogprobRow(request), k);
  const std::vector<float> logprobs = LogprobsOf(scored, top);
  for (int64_t i = 0; i < scored.size(); ++i) {
    const int64_t from = top.offsets[i];
    const int64_t count = top.offsets[i + 1] - from;
    const int64_t to = (scored.rows[i] + 1) * out.k;
    std::copy_n(top.tokens.begin() + from, count, out.token_ids.begin() + to);
    std::copy_n(logprobs.begin() + from, count, out.logprobs.begin() + to);
  }
}

void ScoreTargets(const ScoredRows& scored, PromptTargetLogprobs& out) {
  const PromptTargets& targets = *out.targets;
  RowTargets named;
  std::vector<int64_t> cells;
  for (const int64_t row : scored.rows) {
    for (int64_t cell = targets.offsets[row]; cell < targets.offsets[row + 1]; ++cell) {
      if (targets.tokens[cell] < 0) continue;
      cells.push_back(cell);
      named.tokens.push_back(targets.tokens[cell]);
    }
    named.offsets.push_back(static_cast<int64_t>(cells.size()));
  }
  const std::vector<float> logprobs = LogprobsOf(scored, named);
  for (size_t i = 0; i < cells.size(); ++i) out.logprobs[cells[i]] = logprobs[i];
}

void DrawRow(std::span<const float> logits, const SamplingParams& params, int64_t position,
             std::span<float> weights, std::span<int32_t> tokens, std::span<float> logprobs) {
  const RowDistribution row = DistributionOf(logits, params.temperature, weights);
  if (!row.is_finite()) return;
  if (params.temperature == 0) {
    std::fill(tokens.begin(), tokens.end(), static_cast<int32_t>(FirstOf(logits, row.max)));
  } else {
    DrawAlternatives(weights, params.seed, static_cast<uint32_t>(position), tokens);
  }
  for (size_t i = 0; i < tokens.size(); ++i) logprobs[i] = row.Logprob(logits[tokens[i]]);
}

void DrawAltTokens(const ScoredRows& scored, const SamplingParams& params, PromptAltTokens& out) {
  const auto k = static_cast<size_t>(out.k);
  const int64_t width = scored.whole.size(1);
  ForRows(scored.size(), width, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(width);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = scored.rows[i];
      const std::span<const float> logits(scored.whole.const_data_ptr<float>() + i * width, width);
      DrawRow(logits, params, /*position=*/row + 1, weights, {out.tokens.data() + row * out.k, k},
              {out.logprobs.data() + row * out.k, k});
    }
  });
}

ScoredRows RunHead(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                   std::vector<int64_t> rows, int64_t first_row) {
  ScoredRows scored{.rows = std::move(rows), .vocabulary = VocabularyOf(model)};
  at::Tensor index = at::tensor(scored.rows, at::kLong).sub_(first_row).to(h.device());
  const std::vector<Segment> segments = {{.begin = 0, .end = scored.size(), .adapter = adapter}};
  scored.logits = model.Logits(h.index_select(0, index), segments);
  scored.stats = MergeStats(SoftmaxStatsOf(scored.logits), scored.vocabulary);
  return scored;
}

}  // namespace

int64_t FirstScoredRow(const SampleRequest& request) {
  if (request.prompt_alt_tokens_k > 0) return 0;
  int64_t row = LengthOf(request) - 1;
  if (HasLogprobs(request)) row = FirstLogprobRow(request);
  if (request.targets != nullptr) row = std::min(row, FirstNamedRow(*request.targets));
  return row;
}

void PreparePromptScores(const SampleRequest& request, SampleOutput& output) {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  const int64_t length = LengthOf(request);
  if (request.prompt_logprobs) output.prompt_logprobs.assign(length, kUnknown);
  if (const int64_t k = request.topk_prompt_logprobs; k > 0) {
    output.topk_prompt_logprobs =
        TopkLogprobs{.k = k,
                     .length = length,
                     .token_ids = std::vector<int32_t>(length * k, kNoTopToken),
                     .logprobs = std::vector<float>(length * k, kNoTopLogprob)};
  }
  if (request.targets != nullptr) {
    output.target_prompt_logprobs = PromptTargetLogprobs{
        .targets = request.targets, .logprobs = std::vector<float>(request.targets->tokens.size())};
  }
  if (const int64_t k = request.prompt_alt_tokens_k; k > 0) {
    output.prompt_alt_tokens =
        PromptAltTokens{.k = k,
                        .tokens = std::vector<int32_t>((length - 1) * k),
                        .logprobs = std::vector<float>((length - 1) * k, kUnknown)};
  }
}

void ScorePrompt(const Model& model, const at::Tensor& h, const AdapterWeights* adapter,
                 const SampleRequest& request, int64_t first_row, int64_t chunk_elements,
                 SampleOutput& output) {
  const bool wants_top = request.topk_prompt_logprobs > 0;
  const bool wants_draws = request.prompt_alt_tokens_k > 0;
  // Those draws are by inversion: they ask for the whole distribution.
  const int64_t width = wants_draws ? model.spec().vocab_size : model.part().local.vocab_size;
  const int64_t max_rows = std::max<int64_t>(1, chunk_elements / width);
  int64_t row = first_row;
  while (true) {
    std::vector<int64_t> rows;
    for (; row < first_row + h.size(0) && static_cast<int64_t>(rows.size()) < max_rows; ++row) {
      if (IsWanted(request, row)) rows.push_back(row);
    }
    if (rows.empty()) return;
    ScoredRows scored = RunHead(model, h, adapter, std::move(rows), first_row);
    if (wants_top) scored.host = scored.logits.to(at::kCPU).contiguous();
    if (wants_draws) {
      scored.whole = WholeRows("prompt_scores.rows", scored.logits, scored.vocabulary)
                         .to(at::kCPU)
                         .contiguous();
    }
    if (request.prompt_logprobs) ScoreOwnTokens(scored, request, output.prompt_logprobs);
    if (wants_top) ScoreTop(scored, request, *output.topk_prompt_logprobs);
    if (request.targets != nullptr) ScoreTargets(scored, *output.target_prompt_logprobs);
    if (wants_draws) {
      DrawAltTokens(scored, request.params, *output.prompt_alt_tokens);
    }
  }
}

}  // namespace lathe::worker
