// A running sampling request and its samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/ops/sampling.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/sampling/stop_matcher.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct ActiveRequest;

// One of the request's num_samples completions. While it runs, `kv` lacks only the last token.
struct ActiveSample {
  ActiveRequest* request = nullptr;
  int64_t index = 0;
  StopMatcher stop;
  KvSequence kv;
  std::vector<int32_t> tokens;  // generated so far
  std::vector<float> logprobs;
  std::vector<WeightsRun> weights_runs;
  std::optional<TopkLogprobs> top;  // one row per entry of `tokens`; unset: not requested
  int64_t num_streamed = 0;         // of `tokens`, or of the output's once it has ended
};

struct ActiveRequest {
  SampleRequest request;
  std::shared_ptr<const AdapterWeights> adapter;  // null: the base model
  int64_t inflight_seq = 0;                       // publication of `adapter`; 0: it never changes
  // Scope in which KV blocks are looked up and shared. Unset: they are neither.
  std::optional<PrefixScope> scope;

  KvSequence prompt_kv;         // shared by the samples that start from it
  bool is_ready = false;        // the prompt is computed, and samples can start from it
  bool is_looked_up = false;    // the output states the prefix-cache hit
  at::Tensor next_logits;       // [V], after the prompt; defined while samples wait to start
  int64_t next_logits_seq = 0;  // inflight_seq at their computation
  int64_t num_started = 0;
  int64_t num_finished = 0;
  std::vector<std::unique_ptr<ActiveSample>> samples;  // by index; null until started
  SampleOutput output;

  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
};

}  // namespace lathe::worker
