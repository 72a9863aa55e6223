#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "libs/common/losses/loss_rules.h"
#include "services/worker/training/losses/loss.h"
#include "services/worker/training/losses/registry.h"

namespace lathe::worker {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One entry of every kind of input.
struct Entry {
  double p = -1.2;
  double weight = 0;
  double q = -1.0;
  double advantage = 0;
  double clip_low = 0.8;
  double clip_high = 1.2;
  double mask = 1;
  double reference = 0;
};

struct Evaluated {
  std::vector<float> losses;
  std::vector<float> slopes;
};

std::vector<float> Logprobs(const std::vector<Entry>& entries) {
  std::vector<float> logprobs;
  for (const Entry& e : entries) logprobs.push_back(static_cast<float>(e.p));
  return logprobs;
}

TrainDatum MakeDatum(const std::vector<Entry>& entries) {
  TrainDatum datum;
  for (const Entry& e : entries) {
    datum.tokens.push_back(0);
    datum.targets.push_back(0);
    datum.weights.push_back(static_cast<float>(e.weight));
    datum.logprobs.push_back(static_cast<float>(e.q));
    datum.advantages.push_back(static_cast<float>(e.advantage));
    datum.clip_low.push_back(static_cast<float>(e.clip_low));
    datum.clip_high.push_back(static_cast<float>(e.clip_high));
    datum.mask.push_back(static_cast<float>(e.mask));
    datum.reference_logprobs.push_back(static_cast<float>(e.reference));
  }
  return datum;
}

Evaluated Evaluate(const LossSpec& spec, const TrainDatum& datum,
                   const std::vector<float>& logprobs) {
  Evaluated result{std::vector<float>(logprobs.size()), std::vector<float>(logprobs.size())};
  EvaluateLoss(spec, {datum, logprobs}, 0, static_cast<int64_t>(logprobs.size()),
               result.losses.data(), result.slopes.data());
  return result;
}

double Loss(const LossSpec& spec, const Entry& e) {
  return Evaluate(spec, MakeDatum({e}), Logprobs({e})).losses[0];
}
double Slope(const LossSpec& spec, const Entry& e) {
  return Evaluate(spec, MakeDatum({e}), Logprobs({e})).slopes[0];
}

}  // namespace

TEST_CASE("cross_entropy: -w p with slope -w", "[losses]") {
  const LossSpec spec{.kind = LossKind::kCrossEntropy};
  CHECK(Loss(spec, {.p = -2.0, .weight = 0.5}) == Approx(1.0));
  CHECK(Slope(spec, {.p = -2.0, .weight = 0.5}) == Approx(-0.5));
  CHECK(Loss(spec, {.p = -2.0, .weight = -3}) == Approx(-6.0));
}

TEST_CASE("importance_sampling: -r A with slope -r A", "[losses]") {
  const LossSpec spec{.kind = LossKind::kImportanceSampling};
  const Entry e{.p = -1.2, .q = -1.0, .advantage = 2};
  CHECK(Loss(spec, e) == Approx(-2 * std::exp(-0.2)));
  CHECK(Slope(spec, e) == Approx(-2 * std::exp(-0.2)));
}

TEST_CASE("ppo: the ratio stops mattering beyond the bound its advantage pushes it over",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kPpo};
  const double high = std::log(1.5);
  const double low = std::log(0.5);
  // Inside the bounds: plain policy gradient.
  CHECK(Loss(spec, {.p = std::log(1.1), .q = 0, .advantage = 2}) == Approx(-2.2));
  CHECK(Slope(spec, {.p = std::log(1.1), .q = 0, .advantage = 2}) == Approx(-2.2));
  // Above, good action: clipped. Above, bad action: not clipped.
  CHECK(Loss(spec, {.p = high, .q = 0, .advantage = 2}) == Approx(-2.4));
  CHECK(Slope(spec, {.p = high, .q = 0, .advantage = 2}) == 0);
  CHECK(Loss(spec, {.p = high, .q = 0, .advantage = -2}) == Approx(3.0));
  CHECK(Slope(spec, {.p = high, .q = 0, .advantage = -2}) == Approx(3.0));
  // Below: the other way round.
  CHECK(Slope(spec, {.p = low, .q = 0, .advantage = 2}) == Approx(-1.0));
  CHECK(Loss(spec, {.p = low, .q = 0, .advantage = -2}) == Approx(1.6));
  CHECK(Slope(spec, {.p = low, .q = 0, .advantage = -2}) == 0);
}

TEST_CASE("ppo: a dual clip threshold bounds the loss of bad actions only", "[losses]") {
  const LossSpec spec{.kind = LossKind::kPpo, .dual_clip_threshold = 3.0};
  const auto at_ratio = [](double ratio, double advantage) {
    return Entry{.p = std::log(ratio), .q = 0, .advantage = advantage};
  };
  CHECK(Loss(spec, at_ratio(2.5, -2)) == Approx(5.0));
  CHECK(Slope(spec, at_ratio(2.5, -2)) == Approx(5.0));
  CHECK(Loss(spec, at_ratio(10, -2)) == Approx(6.0));
  CHECK(Slope(spec, at_ratio(10, -2)) == 0);
  CHECK(Loss(spec, at_ratio(10, 2)) == Approx(-2.4));
  CHECK(Loss(spec, {.p = 0, .q = -800, .advantage = -2}) == Approx(6.0));
  CHECK(Loss({.kind = LossKind::kPpo}, at_ratio(10, -2)) == Approx(20.0));
}

TEST_CASE("Losses that clip: a bound given per token replaces the one of the request", "[losses]") {
  const LossKind kind = GENERATE(LossKind::kPpo, LossKind::kCispo, LossKind::kGspo);
  const Entry e{.p = -0.5, .q = -1.0, .advantage = 2};  // a ratio of 1.65
  TrainDatum datum = MakeDatum({e, e});
  datum.clip_low.clear();
  datum.clip_high = {1.1f, 1.3f};
  // gspo: both tokens share the ratio, so the bounds alone tell them apart.
  const Evaluated result =
      Evaluate({.kind = kind, .clip_low = 0.0, .clip_high = 9.0}, datum, Logprobs({e, e}));
  const double factor = kind == LossKind::kCispo ? -0.5 : 1.0;  // of p
  CHECK(result.losses[0] == Approx(-2 * 1.1 * factor));
  CHECK(result.losses[1] == Approx(-2 * 1.3 * factor));
}

TEST_CASE("cispo: the clipped ratio weighs p and is itself not differentiated", "[losses]") {
  const LossSpec spec{.kind = LossKind::kCispo};
  CHECK(Loss(spec, {.p = -1.0, .q = -2.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(6.0));
  CHECK(Slope(spec, {.p = -1.0, .q = -2.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(-6.0));
  CHECK(Slope(spec, {.p = -1.0, .q = -1.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(-3.0));
}

TEST_CASE("dro: -(p A - beta/2 (p - q)^2)", "[losses]") {
  const LossSpec spec{.kind = LossKind::kDro, .beta = 0.1};
  const Entry e{.p = -1.5, .q = -1.0, .advantage = 2};
  CHECK(Loss(spec, e) == Approx(3.0 + 0.05 * 0.25));
  CHECK(Slope(spec, e) == Approx(-2 + 0.1 * -0.5));
}

TEST_CASE("gspo: the ratio is that of the masked tokens' mean, and is clipped as a whole",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kGspo};
  // The first token has an advantage but is not in the mask, the second the other way round.
  const auto datum_at = [](double log_ratio) {
    return std::vector<Entry>{{.p = -4, .q = -1, .advantage = 2, .mask = 0},
                              {.p = -2 + log_ratio + 0.3, .q = -2, .advantage = 0},
                              {.p = -1 + log_ratio - 0.3, .q = -1, .advantage = -2}};
  };
  const std::vector<Entry> inside = datum_at(std::log(1.1));
  const Evaluated plain = Evaluate(spec, MakeDatum(inside), Logprobs(inside));
  CHECK(plain.losses[0] == Approx(-2.2));
  CHECK(plain.slopes[0] == Approx(-2.2));
  CHECK(plain.losses[1] == 0);
  CHECK(plain.slopes[1] == 0);
  CHECK(plain.losses[2] == Approx(2.2));
  const std::vector<Entry> above = datum_at(std::log(1.5));
  const Evaluated clipped = Evaluate(spec, MakeDatum(above), Logprobs(above));
  CHECK(clipped.losses[0] == Approx(-2.4));
  CHECK(clipped.slopes[0] == 0);
  CHECK(clipped.slopes[2] == Approx(3.0));
}

TEST_CASE("gspo: without a masked token the ratio is 1", "[losses]") {
  CHECK(Loss({.kind = LossKind::kGspo}, {.p = -3, .q = -1, .advantage = 2, .mask = 0}) ==
        Approx(-2.0));
}

TEST_CASE("stable_reinforce: the ratio is capped at 4 and is itself not differentiated",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kStableReinforce};
  CHECK(Loss(spec, {.p = -2, .q = -2.5, .advantage = 3}) == Approx(6 * std::exp(0.5)));
  CHECK(Slope(spec, {.p = -2, .q = -2.5, .advantage = 3}) == Approx(-3 * std::exp(0.5)));
  CHECK(Slope(spec, {.p = -2, .q = -5, .advantage = 3}) == Approx(-12));
  CHECK(Slope(spec, {.p = -2, .q = -500, .advantage = 3}) == Approx(-12));
}

TEST_CASE("stable_reinforce: kl_coeff pulls sampled tokens towards q, others are left alone",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kStableReinforce, .kl_coeff = 0.1};
  CHECK(Loss(spec, {.p = -2, .q = -1.5}) == Approx(0.05 * 0.25));
  CHECK(Slope(spec, {.p = -2, .q = -1.5}) == Approx(-0.05));
  CHECK(Loss(spec, {.p = -2, .q = 0, .mask = 0}) == 0);
  CHECK(Slope(spec, {.p = -2, .q = 0, .mask = 0}) == 0);
}

TEST_CASE("kl_coef: the k3 estimate towards the reference is added to every loss", "[losses]") {
  const LossKind kind =
      GENERATE(LossKind::kCrossEntropy, LossKind::kImportanceSampling, LossKind::kPpo,
               LossKind::kCispo, LossKind::kDro, LossKind::kGspo, LossKind::kStableReinforce);
  const Entry e{.p = -1.1, .weight = 0.5, .q = -1.0, .advantage = 0.5, .reference = -1.6};
  const LossSpec plain{.kind = kind};
  const LossSpec pulled{.kind = kind, .kl_coef = 0.2};
  const double d = -1.6 - -1.1;
  CHECK(Loss(pulled, e) - Loss(plain, e) == Approx(0.2 * (std::exp(d) - d - 1)).epsilon(1e-4));
  CHECK(Slope(pulled, e) - Slope(plain, e) == Approx(0.2 * (1 - std::exp(d))).epsilon(1e-4));
}

TEST_CASE("kl_coef: a token without advantage is pulled too, one whose reference is 0 is not",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kPpo, .kl_coef = 1.0};
  CHECK(Slope(spec, {.p = -1, .q = 0, .reference = -2}) == Approx(1 - std::exp(-1.0)));
  CHECK(Loss(spec, {.p = -kInf, .q = 0, .reference = 0}) == 0);
}

TEST_CASE("Every loss: its slope is the derivative of its loss", "[losses]") {
  const LossKind kind = GENERATE(LossKind::kCrossEntropy, LossKind::kImportanceSampling,
                                 LossKind::kPpo, LossKind::kDro);
  const double p = GENERATE(-1.3, -1.02, -0.97, -0.6, -0.2);
  const double advantage = GENERATE(-1.5, 0.7);
  const LossSpec spec{.kind = kind, .beta = 0.3, .dual_clip_threshold = 2.0, .kl_coef = 0.4};
  const Entry here{
      .p = p, .weight = advantage, .q = -1.0, .advantage = advantage, .reference = -0.8};
  Entry up = here;
  Entry down = here;
  constexpr double kStep = 1e-2;
  up.p += kStep;
  down.p -= kStep;
  const double numeric = (Loss(spec, up) - Loss(spec, down)) / (2 * kStep);
  CHECK(Slope(spec, here) == Approx(numeric).margin(1e-3));
}

TEST_CASE("Every loss: zero weight or advantage gives exactly zero, whatever p and q are",
          "[losses]") {
  const LossKind kind =
      GENERATE(LossKind::kCrossEntropy, LossKind::kImportanceSampling, LossKind::kPpo,
               LossKind::kCispo, LossKind::kDro, LossKind::kGspo, LossKind::kStableReinforce);
  const double p = GENERATE(-200.0, -double{kInf}, 0.0);
  const double q = GENERATE(0.0, -300.0, -double{kInf});
  const Entry e{.p = p, .weight = 0, .q = q};
  CHECK(Loss({.kind = kind}, e) == 0);
  CHECK(Slope({.kind = kind}, e) == 0);
  CHECK_FALSE(TakesPart({.kind = kind}, MakeDatum({e}), 0));
}

TEST_CASE("importance_sampling: an overflowing ratio shows as a loss that is not finite",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kImportanceSampling};
  CHECK(std::isinf(Loss(spec, {.p = 0, .q = -200, .advantage = 1})));
}

TEST_CASE("EvaluateLoss: an entry is the same evaluated alone or with its datum", "[losses]") {
  const LossKind kind = GENERATE(LossKind::kPpo, LossKind::kGspo);
  std::vector<Entry> entries;
  for (int i = 0; i < 5; ++i) entries.push_back({.p = -1.0 - 0.01 * i, .advantage = i - 1.5});
  const TrainDatum datum = MakeDatum(entries);
  const std::vector<float> logprobs = Logprobs(entries);
  const Evaluated whole = Evaluate({.kind = kind}, datum, logprobs);
  for (int i = 0; i < 5; ++i) {
    float loss = 0;
    float slope = 0;
    EvaluateLoss({.kind = kind}, {datum, logprobs}, i, i + 1, &loss, &slope);
    CHECK(loss == whole.losses[i]);
    CHECK(slope == whole.slopes[i]);
  }
}

TEST_CASE("ScaleLosses: losses are divided by the tokens that take part, of the datum or of all",
          "[losses]") {
  TrainRequest request;
  request.loss.kind = LossKind::kPpo;
  request.data = {MakeDatum({{.advantage = 0}, {.advantage = 1}, {.advantage = 2}}),
                  MakeDatum({{.advantage = 0}, {.advantage = 3}}), MakeDatum({{.advantage = 0}})};
  const auto scales = [&](LossNormalization normalization) {
    request.loss.normalization = normalization;
    ScaleLosses(request);
    return std::vector<double>{request.data[0].loss_scale, request.data[1].loss_scale,
                               request.data[2].loss_scale};
  };
  CHECK(scales(LossNormalization::kNone) == std::vector<double>{1, 1, 1});
  CHECK(scales(LossNormalization::kDatums) == std::vector<double>{1.0 / 2, 1, 1});
  CHECK(scales(LossNormalization::kTokens) == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3});
}

TEST_CASE("EvaluateLoss: losses and slopes carry the datum's scale", "[losses]") {
  const Entry e{.p = -2.0, .weight = 0.5, .reference = -1.0};
  TrainDatum datum = MakeDatum({e});
  datum.loss_scale = 0.25;
  const LossSpec spec{.kind = LossKind::kCrossEntropy, .kl_coef = 0.5};
  const Evaluated result = Evaluate(spec, datum, Logprobs({e}));
  CHECK(result.losses[0] == Approx(0.25 * Loss(spec, e)));
  CHECK(result.slopes[0] == Approx(0.25 * Slope(spec, e)));
}

TEST_CASE("FindLoss: each kind is found by its own name, others are not", "[losses]") {
  for (const LossKind kind :
       {LossKind::kCrossEntropy, LossKind::kImportanceSampling, LossKind::kPpo, LossKind::kCispo,
        LossKind::kDro, LossKind::kGspo, LossKind::kStableReinforce}) {
    const LossProgram& program = FindLoss(kind);
    CHECK(program.defaults.kind == kind);
    CHECK(FindLoss(program.name) == &program);
  }
  CHECK(FindLoss("custom") == nullptr);
}

TEST_CASE("Every loss takes what its rule says, and every rule has its loss", "[losses]") {
  using Names = std::set<std::string>;
  CHECK(AllLosses().size() == LossRules().size());
  for (const LossRule& rule : LossRules()) {
    INFO(rule.name);
    const LossProgram* const program = FindLoss(rule.name);
    REQUIRE(program != nullptr);
    Names config = {kKlCoef};
    for (const LossOption& option : program->options) config.insert(std::string(option.key));
    CHECK(Names(rule.config.begin(), rule.config.end()) == config);

    const bool has_weights = program->inputs == LossInputs::kWeights;
    const bool has_ratio_mask = program->mask == LossMask::kSequenceRatio;
    Names required = {"target_tokens"};
    if (!has_weights) required.insert({"logprobs", "advantages"});
    if (has_ratio_mask) required.insert("sequence_ratio_mask");
    CHECK(Names(rule.required_inputs.begin(), rule.required_inputs.end()) == required);

    Names optional = {kReferenceLogprobs};
    if (has_weights) optional.insert("weights");
    if (program->clips) optional.insert({kClipLowThreshold, kClipHighThreshold});
    CHECK(Names(rule.optional_inputs.begin(), rule.optional_inputs.end()) == optional);
    CHECK(rule.takes_2d_targets == has_weights);
    CHECK(rule.needs_ratio_mask == has_ratio_mask);
    CHECK(rule.needs_provenance == (program->mask == LossMask::kSampled));
  }
}

}  // namespace lathe::worker
