// A sampling request while it runs, and its samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/lora/adapter_weights.h"
#include "services/worker/ops.h"
#include "services/worker/sampling/kv_cache.h"
#include "services/worker/sampling/stop_matcher.h"

namespace lathe::worker {

struct ActiveRequest;

// One of num_samples. While it runs, `kv` lacks the last token only.
struct ActiveSample {
  ActiveRequest* request = nullptr;
  int64_t index = 0;
  StopMatcher stop;
  KvSequence kv;
  std::vector<int32_t> tokens;  // generated
  std::vector<float> logprobs;
  std::vector<WeightsRun> weights_runs;
  std::optional<TopkLogprobs> top;  // a row for each of `tokens`, if asked for
  int64_t num_streamed = 0;         // of `tokens`, or of those in the output once it has ended
};

struct ActiveRequest {
  SampleRequest request;
  std::shared_ptr<const AdapterWeights> adapter;  // null: base model
  int64_t inflight_seq = 0;                       // publication of `adapter`; 0: it never changes
  // Where blocks are looked up and shared; unset: nowhere.
  std::optional<PrefixScope> scope;

  KvSequence prompt_kv;         // shared by the samples that start from it
  bool is_looked_up = false;    // the output says what was found of the prompt
  at::Tensor next_logits;       // [V] behind the prompt; defined while samples wait to start
  int64_t next_logits_seq = 0;  // inflight_seq when they were computed
  int64_t num_started = 0;
  int64_t num_finished = 0;
  std::vector<std::unique_ptr<ActiveSample>> samples;  // by index, made when they start
  SampleOutput output;

  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
};

}  // namespace lathe::worker
