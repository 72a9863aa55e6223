// Inputs and results of training operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libs/common/lora/lora_modules.h"
#include "libs/common/losses/loss.h"
#include "libs/common/optimizer/adam_params.h"

namespace lathe::worker {

// Shape of one LoRA adapter. `alpha / rank` scales B·A (PEFT's convention).
struct LoraSpec {
  int64_t rank = 32;  // 1…512
  double alpha = 32.0;
  uint64_t seed = 0;  // set by the engine when it accepts the request
  // Names of the base model's modules, in its order, at least one; the engine fills in values that
  // callers omit.
  std::vector<std::string> target_modules = LoraModuleNames(DenseLoraModules());
};

// One validated training sequence: every vector has the length given in its comment.
struct TrainDatum {
  std::vector<int32_t> tokens;    // [N]
  int64_t num_targets = 1;        // K
  bool targets_2d = false;        // (N, K) on the wire even when K is 1
  std::vector<int64_t> targets;   // [N·K]
  std::vector<float> weights;     // [N·K], cross_entropy only
  std::vector<float> logprobs;    // [N], the other losses
  std::vector<float> advantages;  // [N], the other losses
  std::vector<float> clip_low;    // [N] or empty: per-token bound that overrides LossSpec
  std::vector<float> clip_high;   // [N] or empty
  // [N], 1 or 0. gspo: the tokens that form the sequence's ratio. stable_reinforce: the sampled
  // tokens.
  std::vector<float> mask;
  std::vector<float> reference_logprobs;  // [N·K] with kl_coef, else empty
  double loss_scale = 1.0;                // factor of its losses, from LossSpec::normalization
};

struct TrainRequest {
  std::string request_id;
  std::string model_id;
  int64_t seq_id = 0;
  bool forward_only = false;
  LossSpec loss;
  std::vector<TrainDatum> data;
};

struct NamedMetric {
  std::string name;  // "loss:sum"
  double value = 0;
};

// Result of one TrainRequest.
struct TrainOutput {
  std::vector<std::vector<float>> logprobs;  // per datum [N·K], row-major
  std::vector<NamedMetric> metrics;
};

// Action of an optim_step on a gradient that is not finite.
enum class NonFiniteGradients {
  kSkip,   // drops it; weights and moments do not change, the metrics report it
  kApply,  // applies the step anyway
  kFail,   // drops it; the optim_step fails
};

}  // namespace lathe::worker
