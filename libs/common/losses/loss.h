// What a loss is: a function of target log-probabilities and the numbers a client sent with them.
// A program says all that the service needs to know of its loss: the worker computes by it, the
// engine's rules for requests are derived from it (loss_rules.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lathe {

// Names in loss_fn_config and loss_fn_inputs that more than one loss takes.
inline constexpr char kKlCoef[] = "kl_coef";                         // any loss
inline constexpr char kNormalization[] = "normalization";            // none, tokens or datums
inline constexpr char kReferenceLogprobs[] = "reference_logprobs";   // input of kl_coef
inline constexpr char kClipLowThreshold[] = "clip_low_threshold";    // also inputs, by token
inline constexpr char kClipHighThreshold[] = "clip_high_threshold";  // also inputs, by token
inline constexpr char kSequenceRatioMask[] = "sequence_ratio_mask";  // input of kSequenceRatio

// One entry of a datum, an entry being a (position, target) pair. What the datum lacks is zero.
struct LossToken {
  double p = 0;  // log-probability of the target now
  double q = 0;  // of the policy that sampled
  double weight = 0;
  double advantage = 0;
  double clip_low = 0;  // bounds of the ratio
  double clip_high = 0;
  double mask = 0;
  double shared = 0;  // what LossProgram::couple made of the datum
};

struct LossValue {
  double loss = 0;
  double slope = 0;  // d(loss of the datum) / dp
};

// What a client sent with a datum of N positions with K targets each. Each may be empty.
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

// A number of loss_fn_config: finite, and at least `minimum` where a client gives it.
struct LossOption {
  std::string_view key;
  double default_value = 0;
  double minimum = 0;
  bool excludes_minimum = false;  // the minimum itself is refused
};

enum class LossInputs {
  kWeights,  // weights [N·K], ones if left out; targets may be (N, K) or sparse
  kPolicy,   // logprobs and advantages [N]
};

// Where LossDatum::mask comes from.
enum class LossMask {
  kNone,
  kSequenceRatio,  // input sequence_ratio_mask: tokens whose ratios make the sequence's
  kSampled,        // provenance spans: sampled tokens
};

// Bounds of a ratio.
struct RatioBounds {
  double low = 0;
  double high = 0;
};

struct LossSpec;

// One loss. Its registry line is in registry.cc.
struct LossProgram {
  std::string_view name;                // loss_fn
  std::span<const LossOption> options;  // its own; at most kMaxLossNumbers
  LossInputs inputs = LossInputs::kPolicy;
  LossMask mask = LossMask::kNone;
  // Of a loss that clips: the default bounds. Clients may set others, also per token.
  std::optional<RatioBounds> clip;

  // Called for entries that take part (see TakesPart).
  LossValue (*evaluate)(const LossSpec& spec, const LossToken& token);

  // Of a loss that couples the positions of a datum: a number made of all its log-probabilities,
  // which each of its tokens gets as `shared`.
  double (*couple)(const DatumLogprobs& datum) = nullptr;

  // Of a loss with a term of its own that counts tokens in the mask without weight or advantage:
  // whether the term is on.
  bool (*counts_mask)(const LossSpec& spec) = nullptr;
};

// What the losses of a request's datums are divided by; see docs/numerics.md.
enum class LossNormalization {
  kNone,
  kTokens,  // the tokens of the request that take part
  kDatums,  // each datum's: its own tokens that take part
};

inline constexpr size_t kMaxLossNumbers = 8;

// Loss of one request (tinker-api 16.1).
struct LossSpec {
  const LossProgram* program = nullptr;  // always set
  double clip_low = 0;                   // bounds of the ratio itself
  double clip_high = 0;
  std::array<double, kMaxLossNumbers> numbers{};  // of program->options, in their order
  double kl_coef = 0;                             // towards reference_logprobs; 0: off
  LossNormalization normalization = LossNormalization::kNone;
};

LossSpec DefaultsOf(const LossProgram& program);

// The number of loss_fn_config that `key` names; nullptr: the loss takes none of that name.
double* FindNumber(LossSpec& spec, std::string_view key);

}  // namespace lathe
