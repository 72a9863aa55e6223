// Defines a loss: a function of target log-probabilities and of numbers that a client sent with
// them. A LossProgram describes one loss completely. The worker computes with it, and the engine
// derives its rules for requests from it (registry.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lathe {

// Names in loss_fn_config and loss_fn_inputs that several losses share.
inline constexpr char kKlCoef[] = "kl_coef";                         // any loss
inline constexpr char kNormalization[] = "normalization";            // none, tokens or datums
inline constexpr char kReferenceLogprobs[] = "reference_logprobs";   // input of kl_coef
inline constexpr char kClipLowThreshold[] = "clip_low_threshold";    // also inputs, by token
inline constexpr char kClipHighThreshold[] = "clip_high_threshold";  // also inputs, by token
inline constexpr char kSequenceRatioMask[] = "sequence_ratio_mask";  // input of kSequenceRatio

// One entry of a datum: a (position, target) pair. Inputs that the datum lacks are zero.
struct LossToken {
  double p = 0;  // log-probability of the target under the current policy
  double q = 0;  // log-probability under the policy that sampled
  double weight = 0;
  double advantage = 0;
  double clip_low = 0;  // bounds of the ratio
  double clip_high = 0;
  double mask = 0;
  double shared = 0;  // result of LossProgram::couple for the datum
};

struct LossValue {
  double loss = 0;
  double slope = 0;  // d(loss of the datum) / dp
};

// Inputs of a datum with N positions and K targets each. Each input may be empty.
struct LossDatum {
  int64_t num_entries = 0;                    // N·K
  int64_t num_targets = 1;                    // K
  std::span<const float> weights;             // [N·K]
  std::span<const float> logprobs;            // [N]
  std::span<const float> advantages;          // [N]
  std::span<const float> clip_low;            // [N], in place of LossSpec's
  std::span<const float> clip_high;           // [N], in place of LossSpec's
  std::span<const float> mask;                // [N], see LossMask
  std::span<const float> reference_logprobs;  // [N·K]
  double scale = 1.0;                         // factor of its losses, see LossScales
};

// A datum with the log-probabilities [N·K] of its entries.
struct DatumLogprobs {
  LossDatum datum;
  std::span<const float> logprobs;
};

// A number of loss_fn_config. It must be finite, and at least `minimum` if a client sets it.
struct LossOption {
  std::string_view key;
  double default_value = 0;
  double minimum = 0;
  bool excludes_minimum = false;  // true if the minimum itself is refused
};

enum class LossInputs {
  kWeights,  // weights [N·K], ones if left out; targets may be (N, K) or sparse
  kPolicy,   // logprobs and advantages [N]
};

// Source of LossDatum::mask.
enum class LossMask {
  kNone,
  kSequenceRatio,  // input sequence_ratio_mask: tokens that form the sequence's ratio
  kSampled,        // sampled tokens, from the provenance spans
};

// Clipping bounds of a ratio.
struct RatioBounds {
  double low = 0;
  double high = 0;
};

struct LossSpec;

// One loss. registry.cc lists all of them.
struct LossProgram {
  std::string_view name;                // loss_fn
  std::span<const LossOption> options;  // its own options; at most kMaxLossNumbers
  LossInputs inputs = LossInputs::kPolicy;
  LossMask mask = LossMask::kNone;
  // Default bounds, for a loss that clips. Clients may set others, also per token.
  std::optional<RatioBounds> clip;

  // Evaluates one entry that takes part (see TakesPart).
  LossValue (*evaluate)(const LossSpec& spec, const LossToken& token);

  // For a loss that couples the positions of a datum: computes one number from all
  // log-probabilities of the datum. Each token gets it as `shared`.
  double (*couple)(const DatumLogprobs& datum) = nullptr;

  // For a loss with a term that includes masked tokens without weight or advantage: returns true if
  // that term is on.
  bool (*counts_mask)(const LossSpec& spec) = nullptr;
};

// Divisor of the losses of a request's datums; see docs/numerics.md.
enum class LossNormalization {
  kNone,
  kTokens,  // number of the request's tokens that take part
  kDatums,  // for each datum, the number of its own tokens that take part
};

inline constexpr size_t kMaxLossNumbers = 8;

// Loss of one request.
struct LossSpec {
  const LossProgram* program = nullptr;  // always set
  double clip_low = 0;                   // bounds of the ratio itself
  double clip_high = 0;
  std::array<double, kMaxLossNumbers> numbers{};  // values of program->options, in their order
  double kl_coef = 0;                             // KL penalty against reference_logprobs; 0: off
  LossNormalization normalization = LossNormalization::kNone;
};

inline LossSpec DefaultsOf(const LossProgram& program) {
  LossSpec spec{.program = &program};
  const RatioBounds bounds = program.clip.value_or(RatioBounds{});
  spec.clip_low = bounds.low;
  spec.clip_high = bounds.high;
  for (size_t i = 0; i < program.options.size(); ++i) {
    spec.numbers.at(i) = program.options[i].default_value;
  }
  return spec;
}

// Returns the number of loss_fn_config that `key` names; null: the loss has no such number.
inline double* FindNumber(LossSpec& spec, std::string_view key) {
  const LossProgram& program = *spec.program;
  if (key == kKlCoef) return &spec.kl_coef;
  if (program.clip.has_value() && key == kClipLowThreshold) return &spec.clip_low;
  if (program.clip.has_value() && key == kClipHighThreshold) return &spec.clip_high;
  for (size_t i = 0; i < program.options.size(); ++i) {
    if (program.options[i].key == key) return &spec.numbers.at(i);
  }
  return nullptr;
}

}  // namespace lathe
