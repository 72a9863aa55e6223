// Inputs and results of sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lathe::worker {

struct SamplingParams {
  int64_t max_tokens = 0;    // always set; the engine replaces "unset" by the end of the context
  double temperature = 1.0;  // 0 = greedy
  int64_t top_k = -1;        // -1 = off
  double top_p = 1.0;        // 1 = off
  double min_p = 0.0;        // 0 = off
  uint64_t seed = 0;         // set by the engine when it accepts the request
  bool ignore_eos = false;   // `stop: []`
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
};

// Tokens to score at the prompt positions after the first, in the client's layout.
struct PromptTargets {
  int64_t num_columns = 0;
  bool is_sparse = false;
  std::vector<int64_t> offsets;  // [prompt]: cells of row i are offsets[i] … offsets[i + 1] - 1
  std::vector<int64_t> columns;  // one for each cell, if is_sparse
  std::vector<int64_t> tokens;   // one for each cell; -1: nothing to score
};

// One `asample`. An empty `version_id` is the base model.
struct SampleRequest {
  std::string request_id;
  std::string tenant_id;  // scope of the prefix cache; empty: it is not used
  std::string version_id;
  std::vector<int32_t> prompt;
  int64_t num_samples = 1;
  SamplingParams params;
  bool prompt_logprobs = false;
  int64_t topk_prompt_logprobs = 0;
  int64_t prompt_logprobs_last_n = 0;            // 0: the whole prompt
  std::shared_ptr<const PromptTargets> targets;  // null: none
  int64_t prompt_alt_tokens_k = 0;
  int64_t topk_sample_logprobs = 0;
  bool streamed = false;  // reports tokens as they are sampled
};

// Consecutive tokens sampled under the same weights.
struct WeightsRun {
  int64_t seq_id = 0;  // seq_id of the PublishVersion
  int64_t num_tokens = 0;
};

// Values that clients read as an undefined entry of top-k logprobs.
inline constexpr int32_t kNoTopToken = 0;
inline constexpr float kNoTopLogprob = -99999.0f;

struct TopkLogprobs {
  int64_t k = 0;
  int64_t length = 0;
  std::vector<int32_t> token_ids;  // [length·k]
  std::vector<float> logprobs;     // [length·k]
};

struct SampledSequence {
  bool stopped = false;  // false = max_tokens reached
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<WeightsRun> weights_runs;  // set for an inflight version, else empty
  std::optional<TopkLogprobs> topk_logprobs;
};

struct PromptTargetLogprobs {
  std::shared_ptr<const PromptTargets> targets;  // the layout of `logprobs`
  std::vector<float> logprobs;                   // one for each cell; 0: nothing to score
};

// Tokens sampled at each prompt position after the first.
struct PromptAltTokens {
  int64_t k = 0;
  std::vector<int32_t> tokens;  // [(prompt - 1)·k]
  std::vector<float> logprobs;  // [(prompt - 1)·k], under the distribution they were sampled from
};

struct SampleOutput {
  std::vector<SampledSequence> sequences;
  std::vector<float> prompt_logprobs;  // empty or [prompt], NaN where not scored
  std::optional<TopkLogprobs> topk_prompt_logprobs;
  std::optional<PromptTargetLogprobs> target_prompt_logprobs;
  std::optional<PromptAltTokens> prompt_alt_tokens;
  int64_t prompt_cache_hit_tokens = 0;
};

}  // namespace lathe::worker
