#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include "services/worker/training/losses/loss.h"

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
  double sequence_log_ratio = 0;
};

at::Tensor One(double value) { return at::full({1}, value, at::kFloat); }

LossResult Evaluate(const LossSpec& spec, const Entry& e) {
  return EvaluateLoss(spec, One(e.p),
                      {One(e.weight), One(e.q), One(e.advantage), One(e.clip_low), One(e.clip_high),
                       One(e.mask), One(e.sequence_log_ratio)});
}

double Loss(const LossSpec& spec, const Entry& e) { return Evaluate(spec, e).loss.item<double>(); }
double Slope(const LossSpec& spec, const Entry& e) {
  return Evaluate(spec, e).dlogprobs.item<double>();
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

TEST_CASE("gspo: the sequence's ratio is clipped, p and q of the token do not matter", "[losses]") {
  const LossSpec spec{.kind = LossKind::kGspo};
  const double inside = std::log(1.1);
  const double above = std::log(1.5);
  CHECK(Loss(spec, {.advantage = 2, .sequence_log_ratio = inside}) == Approx(-2.2));
  CHECK(Slope(spec, {.advantage = 2, .sequence_log_ratio = inside}) == Approx(-2.2));
  CHECK(Loss(spec, {.advantage = 2, .sequence_log_ratio = above}) == Approx(-2.4));
  CHECK(Slope(spec, {.advantage = 2, .sequence_log_ratio = above}) == 0);
  CHECK(Slope(spec, {.advantage = -2, .sequence_log_ratio = above}) == Approx(3.0));
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

TEST_CASE("Every loss: its slope is the derivative of its loss", "[losses]") {
  const LossKind kind = GENERATE(LossKind::kCrossEntropy, LossKind::kImportanceSampling,
                                 LossKind::kPpo, LossKind::kDro);
  const double p = GENERATE(-1.3, -1.02, -0.97, -0.6);
  const double advantage = GENERATE(-1.5, 0.7);
  const LossSpec spec{.kind = kind, .beta = 0.3};
  Entry up{.p = p, .weight = advantage, .q = -1.0, .advantage = advantage};
  Entry down = up;
  constexpr double kStep = 1e-2;
  up.p += kStep;
  down.p -= kStep;
  const double numeric = (Loss(spec, up) - Loss(spec, down)) / (2 * kStep);
  CHECK(Slope(spec, {.p = p, .weight = advantage, .q = -1.0, .advantage = advantage}) ==
        Approx(numeric).margin(1e-3));
}

TEST_CASE("Every loss: zero weight or advantage gives exactly zero, whatever p and q are",
          "[losses]") {
  const LossKind kind =
      GENERATE(LossKind::kCrossEntropy, LossKind::kImportanceSampling, LossKind::kPpo,
               LossKind::kCispo, LossKind::kDro, LossKind::kGspo, LossKind::kStableReinforce);
  const double p = GENERATE(-200.0, -double{kInf}, 0.0);
  const double q = GENERATE(0.0, -300.0, -double{kInf});
  const LossResult result =
      Evaluate({.kind = kind}, {.p = p, .weight = 0, .q = q, .sequence_log_ratio = kInf});
  CHECK(result.loss.item<double>() == 0);
  CHECK(result.dlogprobs.item<double>() == 0);
}

TEST_CASE("importance_sampling: an overflowing ratio shows as a loss that is not finite",
          "[losses]") {
  const LossSpec spec{.kind = LossKind::kImportanceSampling};
  CHECK(std::isinf(Loss(spec, {.p = 0, .q = -200, .advantage = 1})));
}

}  // namespace lathe::worker
