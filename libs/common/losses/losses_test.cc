#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libs/common/losses/evaluate_loss.h"
#include "libs/common/losses/registry.h"

namespace lathe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One entry with every kind of input.
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

// Owns the arrays of a LossDatum.
struct Datum {
  std::vector<float> weights, logprobs, advantages, clip_low, clip_high, mask, reference_logprobs;
  double scale = 1.0;

  LossDatum view() const {
    return {.num_entries = static_cast<int64_t>(logprobs.size()),
            .weights = weights,
            .logprobs = logprobs,
            .advantages = advantages,
            .clip_low = clip_low,
            .clip_high = clip_high,
            .mask = mask,
            .reference_logprobs = reference_logprobs,
            .scale = scale};
  }
};

// Returns a loss with its defaults, except for these numbers.
LossSpec Spec(const std::string& name, const std::map<std::string, double>& numbers = {}) {
  LossSpec spec = DefaultLoss(name);
  for (const auto& [key, value] : numbers) {
    double* const number = FindNumber(spec, key);
    REQUIRE(number != nullptr);
    *number = value;
  }
  return spec;
}

struct Evaluated {
  std::vector<float> losses;
  std::vector<float> slopes;
};

std::vector<float> Logprobs(const std::vector<Entry>& entries) {
  std::vector<float> logprobs;
  for (const Entry& e : entries) logprobs.push_back(static_cast<float>(e.p));
  return logprobs;
}

Datum MakeDatum(const std::vector<Entry>& entries) {
  Datum datum;
  for (const Entry& e : entries) {
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

Evaluated Evaluate(const LossSpec& spec, const Datum& datum, const std::vector<float>& logprobs) {
  Evaluated result{std::vector<float>(logprobs.size()), std::vector<float>(logprobs.size())};
  EvaluateLoss(spec, {datum.view(), logprobs}, 0, static_cast<int64_t>(logprobs.size()),
               result.losses.data(), result.slopes.data());
  return result;
}

// Losses with a factor that is not differentiated. Their slope is not the derivative of their loss.
const std::set<std::string_view> kStopGradients = {"cispo", "stable_reinforce"};

// Returns a loss whose numbers are neither their defaults nor 0, so that each of its terms is on.
LossSpec WithEveryTerm(const LossProgram& program) {
  LossSpec spec = DefaultsOf(program);
  for (size_t i = 0; i < program.options.size(); ++i) {
    const LossOption& option = program.options[i];
    spec.numbers[i] =
        option.default_value != 0 ? 2 * option.default_value : std::max(option.minimum, 0.0) + 1;
  }
  spec.kl_coef = 0.4;
  return spec;
}

double Loss(const LossSpec& spec, const Entry& e) {
  return Evaluate(spec, MakeDatum({e}), Logprobs({e})).losses[0];
}
double Slope(const LossSpec& spec, const Entry& e) {
  return Evaluate(spec, MakeDatum({e}), Logprobs({e})).slopes[0];
}

}  // namespace

TEST_CASE("cross_entropy: -w p with slope -w", "[losses]") {
  const LossSpec spec = Spec("cross_entropy");
  CHECK(Loss(spec, {.p = -2.0, .weight = 0.5}) == Approx(1.0));
  CHECK(Slope(spec, {.p = -2.0, .weight = 0.5}) == Approx(-0.5));
  CHECK(Loss(spec, {.p = -2.0, .weight = -3}) == Approx(-6.0));
}

TEST_CASE("importance_sampling: -r A with slope -r A", "[losses]") {
  const LossSpec spec = Spec("importance_sampling");
  const Entry e{.p = -1.2, .q = -1.0, .advantage = 2};
  CHECK(Loss(spec, e) == Approx(-2 * std::exp(-0.2)));
  CHECK(Slope(spec, e) == Approx(-2 * std::exp(-0.2)));
}

TEST_CASE("ppo: the ratio stops mattering beyond the bound its advantage pushes it over",
          "[losses]") {
  const LossSpec spec = Spec("ppo");
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
  // Below the bounds, it is the other way round.
  CHECK(Slope(spec, {.p = low, .q = 0, .advantage = 2}) == Approx(-1.0));
  CHECK(Loss(spec, {.p = low, .q = 0, .advantage = -2}) == Approx(1.6));
  CHECK(Slope(spec, {.p = low, .q = 0, .advantage = -2}) == 0);
}

TEST_CASE("ppo: a dual clip threshold bounds the loss of bad actions only", "[losses]") {
  const LossSpec spec = Spec("ppo", {{"dual_clip_threshold", 3.0}});
  const auto at_ratio = [](double ratio, double advantage) {
    return Entry{.p = std::log(ratio), .q = 0, .advantage = advantage};
  };
  CHECK(Loss(spec, at_ratio(2.5, -2)) == Approx(5.0));
  CHECK(Slope(spec, at_ratio(2.5, -2)) == Approx(5.0));
  CHECK(Loss(spec, at_ratio(10, -2)) == Approx(6.0));
  CHECK(Slope(spec, at_ratio(10, -2)) == 0);
  CHECK(Loss(spec, at_ratio(10, 2)) == Approx(-2.4));
  CHECK(Loss(spec, {.p = 0, .q = -800, .advantage = -2}) == Approx(6.0));
  CHECK(Loss(Spec("ppo"), at_ratio(10, -2)) == Approx(20.0));
}

TEST_CASE("Losses that clip: a bound given per token replaces the one of the request", "[losses]") {
  const std::string name = GENERATE("ppo", "cispo", "gspo");
  const Entry e{.p = -0.5, .q = -1.0, .advantage = 2};  // a ratio of 1.65
  Datum datum = MakeDatum({e, e});
  datum.clip_low.clear();
  datum.clip_high = {1.1f, 1.3f};
  // In gspo, both tokens share the ratio, so only the bounds differ.
  const Evaluated result = Evaluate(
      Spec(name, {{kClipLowThreshold, 0.0}, {kClipHighThreshold, 9.0}}), datum, Logprobs({e, e}));
  const double factor = name == "cispo" ? -0.5 : 1.0;  // of p
  CHECK(result.losses[0] == Approx(-2 * 1.1 * factor));
  CHECK(result.losses[1] == Approx(-2 * 1.3 * factor));
}

TEST_CASE("cispo: the clipped ratio weighs p and is itself not differentiated", "[losses]") {
  const LossSpec spec = Spec("cispo");
  CHECK(Loss(spec, {.p = -1.0, .q = -2.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(6.0));
  CHECK(Slope(spec, {.p = -1.0, .q = -2.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(-6.0));
  CHECK(Slope(spec, {.p = -1.0, .q = -1.0, .advantage = 3, .clip_low = 0, .clip_high = 2}) ==
        Approx(-3.0));
}

TEST_CASE("dro: -(p A - beta/2 (p - q)^2)", "[losses]") {
  const LossSpec spec = Spec("dro", {{"beta", 0.1}});
  const Entry e{.p = -1.5, .q = -1.0, .advantage = 2};
  CHECK(Loss(spec, e) == Approx(3.0 + 0.05 * 0.25));
  CHECK(Slope(spec, e) == Approx(-2 + 0.1 * -0.5));
}

TEST_CASE("gspo: the ratio is that of the masked tokens' mean, and is clipped as a whole",
          "[losses]") {
  const LossSpec spec = Spec("gspo");
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
  CHECK(Loss(Spec("gspo"), {.p = -3, .q = -1, .advantage = 2, .mask = 0}) == Approx(-2.0));
}

TEST_CASE("stable_reinforce: the ratio is capped at 4 and is itself not differentiated",
          "[losses]") {
  const LossSpec spec = Spec("stable_reinforce");
  CHECK(Loss(spec, {.p = -2, .q = -2.5, .advantage = 3}) == Approx(6 * std::exp(0.5)));
  CHECK(Slope(spec, {.p = -2, .q = -2.5, .advantage = 3}) == Approx(-3 * std::exp(0.5)));
  CHECK(Slope(spec, {.p = -2, .q = -5, .advantage = 3}) == Approx(-12));
  CHECK(Slope(spec, {.p = -2, .q = -500, .advantage = 3}) == Approx(-12));
}

TEST_CASE("stable_reinforce: kl_coeff pulls sampled tokens towards q, others are left alone",
          "[losses]") {
  const LossSpec spec = Spec("stable_reinforce", {{"kl_coeff", 0.1}});
  CHECK(Loss(spec, {.p = -2, .q = -1.5}) == Approx(0.05 * 0.25));
  CHECK(Slope(spec, {.p = -2, .q = -1.5}) == Approx(-0.05));
  CHECK(Loss(spec, {.p = -2, .q = 0, .mask = 0}) == 0);
  CHECK(Slope(spec, {.p = -2, .q = 0, .mask = 0}) == 0);
}

TEST_CASE("kl_coef: the k3 estimate towards the reference is added to every loss", "[losses]") {
  const LossProgram& program = *GENERATE(from_range(AllLosses()));
  const Entry e{.p = -1.1, .weight = 0.5, .q = -1.0, .advantage = 0.5, .reference = -1.6};
  const LossSpec plain = DefaultsOf(program);
  LossSpec pulled = plain;
  pulled.kl_coef = 0.2;
  const double d = -1.6 - -1.1;
  CHECK(Loss(pulled, e) - Loss(plain, e) == Approx(0.2 * (std::exp(d) - d - 1)).epsilon(1e-4));
  CHECK(Slope(pulled, e) - Slope(plain, e) == Approx(0.2 * (1 - std::exp(d))).epsilon(1e-4));
}

TEST_CASE("kl_coef: a token without advantage is pulled too, one whose reference is 0 is not",
          "[losses]") {
  const LossSpec spec = Spec("ppo", {{"kl_coef", 1.0}});
  CHECK(Slope(spec, {.p = -1, .q = 0, .reference = -2}) == Approx(1 - std::exp(-1.0)));
  CHECK(Loss(spec, {.p = -kInf, .q = 0, .reference = 0}) == 0);
}

TEST_CASE("Every loss: its slope is the derivative of its loss", "[losses]") {
  const LossProgram& program = *GENERATE(from_range(AllLosses()));
  if (kStopGradients.count(program.name) > 0) return;
  INFO(program.name << ", which is not in kStopGradients");
  const LossSpec spec = WithEveryTerm(program);
  const double p = GENERATE(-1.3, -1.02, -0.97, -0.6, -0.2);
  const double advantage = GENERATE(-1.5, 0.7);
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
  const LossProgram& program = *GENERATE(from_range(AllLosses()));
  const double p = GENERATE(-200.0, -double{kInf}, 0.0);
  const double q = GENERATE(0.0, -300.0, -double{kInf});
  const Entry e{.p = p, .weight = 0, .q = q};
  const LossSpec spec = DefaultsOf(program);
  CHECK(Loss(spec, e) == 0);
  CHECK(Slope(spec, e) == 0);
  CHECK_FALSE(TakesPart(spec, MakeDatum({e}).view(), 0));
}

TEST_CASE("importance_sampling: an overflowing ratio shows as a loss that is not finite",
          "[losses]") {
  const LossSpec spec = Spec("importance_sampling");
  CHECK(std::isinf(Loss(spec, {.p = 0, .q = -200, .advantage = 1})));
}

TEST_CASE("EvaluateLoss: an entry is the same evaluated alone or with its datum", "[losses]") {
  const LossSpec spec = Spec(GENERATE("ppo", "gspo"));
  std::vector<Entry> entries;
  for (int i = 0; i < 5; ++i) entries.push_back({.p = -1.0 - 0.01 * i, .advantage = i - 1.5});
  const Datum datum = MakeDatum(entries);
  const std::vector<float> logprobs = Logprobs(entries);
  const Evaluated whole = Evaluate(spec, datum, logprobs);
  for (int i = 0; i < 5; ++i) {
    float loss = 0;
    float slope = 0;
    EvaluateLoss(spec, {datum.view(), logprobs}, i, i + 1, &loss, &slope);
    CHECK(loss == whole.losses[i]);
    CHECK(slope == whole.slopes[i]);
  }
}

TEST_CASE("LossScales: losses are divided by the tokens that take part, of the datum or of all",
          "[losses]") {
  const std::vector<Datum> data = {
      MakeDatum({{.advantage = 0}, {.advantage = 1}, {.advantage = 2}}),
      MakeDatum({{.advantage = 0}, {.advantage = 3}}), MakeDatum({{.advantage = 0}})};
  const std::vector<LossDatum> views = {data[0].view(), data[1].view(), data[2].view()};
  const auto scales = [&](LossNormalization normalization) {
    LossSpec spec = Spec("ppo");
    spec.normalization = normalization;
    return LossScales(spec, views);
  };
  CHECK(scales(LossNormalization::kNone) == std::vector<double>{1, 1, 1});
  CHECK(scales(LossNormalization::kDatums) == std::vector<double>{1.0 / 2, 1, 1});
  CHECK(scales(LossNormalization::kTokens) == std::vector<double>{1.0 / 3, 1.0 / 3, 1.0 / 3});
}

TEST_CASE("EvaluateLoss: losses and slopes carry the datum's scale", "[losses]") {
  const Entry e{.p = -2.0, .weight = 0.5, .reference = -1.0};
  Datum datum = MakeDatum({e});
  datum.scale = 0.25;
  const LossSpec spec = Spec("cross_entropy", {{"kl_coef", 0.5}});
  const Evaluated result = Evaluate(spec, datum, Logprobs({e}));
  CHECK(result.losses[0] == Approx(0.25 * Loss(spec, e)));
  CHECK(result.slopes[0] == Approx(0.25 * Slope(spec, e)));
}

TEST_CASE("FindLoss: each loss is found by its name, others are not", "[losses]") {
  for (const LossProgram* program : AllLosses()) CHECK(FindLoss(program->name) == program);
  CHECK(FindLoss("custom") == nullptr);
}

TEST_CASE("FindNumber: a loss has its own numbers, those of clipping if it clips, and kl_coef",
          "[losses]") {
  LossSpec ppo = Spec("ppo");
  *FindNumber(ppo, "dual_clip_threshold") = 3;
  *FindNumber(ppo, "clip_high_threshold") = 1.5;
  CHECK(ppo.numbers[0] == 3);
  CHECK(ppo.clip_low == 0.8);
  CHECK(ppo.clip_high == 1.5);
  LossSpec dro = Spec("dro");
  CHECK(*FindNumber(dro, "beta") == 0.05);
  CHECK(FindNumber(dro, "clip_low_threshold") == nullptr);
  CHECK(FindNumber(dro, "dual_clip_threshold") == nullptr);
  CHECK(FindNumber(dro, "kl_coef") == &dro.kl_coef);
}

TEST_CASE("ReferenceLoss: the part of a loss that a reference adds", "[losses]") {
  const Entry e{.p = -1.1, .q = -1.0, .advantage = 0.5, .reference = -1.6};
  const auto part = [&](const LossSpec& spec, const Entry& entry) {
    return ReferenceLoss(spec, {MakeDatum({entry}).view(), Logprobs({entry})}, 0);
  };
  const LossSpec pulled = Spec("ppo", {{"kl_coef", 0.2}});
  CHECK(part(pulled, e) == Approx(Loss(pulled, e) - Loss(Spec("ppo"), e)).epsilon(1e-4));
  CHECK(std::isinf(part(pulled, {.reference = 1e38})));
  CHECK(part(pulled, {.reference = 0}) == 0);
  CHECK(part(Spec("ppo"), e) == 0);
}

}  // namespace lathe
