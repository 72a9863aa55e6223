#include "services/worker/sampling/prompt_scores.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/logprobs.h"
#include "services/worker/sampling/sampler/vocabulary_shard.h"

namespace lathe::worker {
namespace {

int64_t LengthOf(const SampleRequest& request) {
  return static_cast<int64_t>(request.prompt.size());
}

// Returns the first row that prompt_logprobs and topk_prompt_logprobs cover.
int64_t FirstLogprobRow(const SampleRequest& request) {
  const int64_t last_n = request.prompt_logprobs_last_n;
  return last_n == 0 ? 0 : LengthOf(request) - 1 - last_n;
}

bool NamesTarget(const PromptTargets& targets, int64_t row) {
  const auto begin = targets.tokens.begin();
  return std::any_of(begin + targets.offsets[row], begin + targets.offsets[row + 1],
                     [](int64_t token) { return token >= 0; });
}

// Returns the first row that names a target. There must be one.
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

// Selected rows of a prompt and their logits. `logits` may be on a device. `host` and `whole` are
// on the CPU.
struct ScoredRows {
  std::vector<int64_t> rows;  // ascending
  VocabularyShard vocabulary;
  at::Tensor logits;  // [n, V] fp32, this rank's columns
  at::Tensor host;    // copy of `logits`, if needed
  at::Tensor whole;   // [n, whole_size], all ranks' columns, if needed

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

// Tokens to score in each row, with the destinations of their log-probabilities.
struct Chosen {
  RowTargets targets;
  std::vector<float*> places;

  void Add(int64_t token, float* place) {
    targets.tokens.push_back(token);
    places.push_back(place);
  }
  void EndRow() { targets.offsets.push_back(static_cast<int64_t>(places.size())); }
};

// Returns [n, k], the most likely tokens of each row. Rows before `first_row` are not filled.
std::vector<TopCandidate> MostLikelyOf(const ScoredRows& scored, int64_t first_row, int64_t k) {
  std::vector<TopCandidate> own(scored.size() * k);
  ForRows(scored.size(), scored.host.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (scored.rows[i] < first_row) continue;
      std::ranges::copy(
          TopCandidates(OwnTokens(scored.host, i, scored.vocabulary), scored.vocabulary, k),
          own.begin() + i * k);
    }
  });
  if (scored.vocabulary.tp.is_alone()) return own;
  const std::vector<TopCandidate> all =
      GatherAll(scored.vocabulary.tp, "prompt_scores.top", own, scored.logits.device());
  for (int64_t i = 0; i < scored.size(); ++i) {
    std::vector<TopCandidate> candidates;
    for (size_t from = i * k; from < all.size(); from += own.size()) {
      candidates.insert(candidates.end(), all.begin() + from, all.begin() + from + k);
    }
    std::ranges::copy(MostLikely(std::move(candidates), k), own.begin() + i * k);
  }
  return own;
}

// Writes log-probabilities of all tokens that `request` asks for in these rows, except sampled
// ones.
void ScoreTokens(const ScoredRows& scored, const SampleRequest& request, SampleOutput& output) {
  const int64_t first_row = FirstLogprobRow(request);
  std::optional<TopkLogprobs>& top = output.topk_prompt_logprobs;
  const int64_t k = top ? std::min(top->k, scored.vocabulary.whole_size) : 0;
  std::vector<TopCandidate> most_likely;
  if (k > 0) most_likely = MostLikelyOf(scored, first_row, k);
  Chosen chosen;
  for (int64_t i = 0; i < scored.size(); ++i) {
    const int64_t row = scored.rows[i];
    const bool has_logprobs = row >= first_row;
    if (request.prompt_logprobs && has_logprobs) {
      chosen.Add(request.prompt[row + 1], &output.prompt_logprobs[row + 1]);
    }
    for (int64_t j = 0; j < k && has_logprobs; ++j) {
      const int64_t place = (row + 1) * top->k + j;
      top->token_ids[place] = most_likely[i * k + j].token;
      chosen.Add(top->token_ids[place], &top->logprobs[place]);
    }
    if (request.targets != nullptr) {
      PromptTargetLogprobs& named = *output.target_prompt_logprobs;
      for (int64_t cell = named.targets->offsets[row]; cell < named.targets->offsets[row + 1];
           ++cell) {
        if (named.targets->tokens[cell] < 0) continue;
        chosen.Add(named.targets->tokens[cell], &named.logprobs[cell]);
      }
    }
    chosen.EndRow();
  }
  if (chosen.places.empty()) return;
  const ScoredTargets tokens = ScoreTargets(scored.logits, chosen.targets,
                                            scored.vocabulary.own.begin, scored.vocabulary.tp);
  for (size_t i = 0; i < chosen.places.size(); ++i) *chosen.places[i] = tokens.logprobs[i];
}

void SampleRow(std::span<const float> logits, const SamplingParams& params, int64_t position,
               std::span<float> weights, std::span<int32_t> tokens, std::span<float> logprobs) {
  const RowDistribution row = DistributionOf(logits, params.temperature, weights);
  if (!row.is_finite()) return;
  if (params.temperature == 0) {
    std::fill(tokens.begin(), tokens.end(), static_cast<int32_t>(FirstOf(logits, row.max)));
  } else {
    SampleMultinomial(weights, params.seed, static_cast<uint32_t>(position), tokens);
  }
  for (size_t i = 0; i < tokens.size(); ++i) logprobs[i] = row.Logprob(logits[tokens[i]]);
}

void SampleAltTokens(const ScoredRows& scored, const SamplingParams& params, PromptAltTokens& out) {
  const auto k = static_cast<size_t>(out.k);
  const int64_t width = scored.whole.size(1);
  ForRows(scored.size(), width, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(width);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = scored.rows[i];
      const std::span<const float> logits(scored.whole.const_data_ptr<float>() + i * width, width);
      SampleRow(logits, params, /*position=*/row + 1, weights, {out.tokens.data() + row * out.k, k},
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
  const bool wants_samples = request.prompt_alt_tokens_k > 0;
  // Sampling prompt_alt_tokens inverts the distribution function, which needs all columns of a row.
  const int64_t width = wants_samples ? model.spec().vocab_size : model.part().local.vocab_size;
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
    if (wants_samples) {
      scored.whole = WholeRows("prompt_scores.rows", scored.logits, scored.vocabulary)
                         .to(at::kCPU)
                         .contiguous();
    }
    ScoreTokens(scored, request, output);
    if (wants_samples) {
      SampleAltTokens(scored, request.params, *output.prompt_alt_tokens);
    }
  }
}

}  // namespace lathe::worker
