// Loss programs: functions of target log-probabilities and the numbers a client sent with them.
// Free of torch: a datum's values are read and written on the host.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "services/worker/ops.h"

namespace lathe::worker {

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

// A datum with the log-probabilities [N·K] of its entries.
struct DatumLogprobs {
  const TrainDatum& datum;
  std::span<const float> logprobs;
};

// A number of loss_fn_config and where it goes.
struct LossOption {
  std::string_view key;
  double LossSpec::*value;
};

enum class LossInputs {
  kWeights,  // weights [N·K], ones if left out
  kPolicy,   // logprobs and advantages [N]
};

// Where TrainDatum::mask comes from.
enum class LossMask {
  kNone,
  kSequenceRatio,  // input sequence_ratio_mask
  kSampled,        // provenance spans
};

// One loss. Its registry line is in registry.cc.
struct LossProgram {
  std::string_view name;                // loss_fn
  LossSpec defaults;                    // with its kind
  std::span<const LossOption> options;  // beside those every loss takes
  LossInputs inputs = LossInputs::kPolicy;
  LossMask mask = LossMask::kNone;
  bool clips = false;  // takes clip bounds, in the configuration and per token

  // Called for entries that take part (see TakesPart).
  LossValue (*evaluate)(const LossSpec& spec, const LossToken& token);

  // Of a loss that couples the positions of a datum: a number made of all its log-probabilities,
  // which each of its tokens gets as `shared`.
  double (*couple)(const DatumLogprobs& datum) = nullptr;
};

// Whether an entry can have a loss or a slope that is not zero: its weight or advantage is not
// zero, or a term that pulls the policy counts it. Known before the forward pass.
bool TakesPart(const LossSpec& spec, const TrainDatum& datum, int64_t entry);

// Loss and dL/dp of the entries [begin, end), each times the datum's loss_scale. Entries that take
// no part get exactly zero, whatever their p and q are. All of the datum's log-probabilities must
// be there if its loss couples positions, else those of [begin, end). An entry's bits depend on its
// datum alone.
//   losses, slopes  [end - begin]
void EvaluateLoss(const LossSpec& spec, const DatumLogprobs& datum, int64_t begin, int64_t end,
                  float* losses, float* slopes);

// Sets loss_scale of each datum as the request's normalization says; see docs/numerics.md.
void ScaleLosses(TrainRequest& request);

}  // namespace lathe::worker
