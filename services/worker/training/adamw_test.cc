#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

Adapter SmallAdapter() {
  const ModelSpec model{.family = "qwen3",
                        .num_layers = 1,
                        .hidden_size = 4,
                        .intermediate_size = 4,
                        .num_heads = 1,
                        .num_kv_heads = 1,
                        .head_dim = 4,
                        .vocab_size = 4};
  return Adapter(model, {.rank = 1, .seed = 3}, at::kCPU);
}

double Metric(const std::vector<NamedMetric>& metrics, const std::string& name) {
  for (const NamedMetric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  FAIL("no metric " << name);
  return 0;
}

bool HasMetric(const std::vector<NamedMetric>& metrics, const std::string& name) {
  for (const NamedMetric& metric : metrics) {
    if (metric.name == name) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("ApplyAdamW: follows the formula over steps whose parameters change", "[adamw]") {
  Adapter adapter = SmallAdapter();
  double theta = adapter.parameters[0].item<double>();
  double m = 0;
  double v = 0;
  for (int t = 1; t <= 4; ++t) {
    const double g = 0.3 * t - 0.7;
    const AdamParams params{
        .learning_rate = 0.01 * t, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};
    theta *= 1 - params.learning_rate * params.weight_decay;
    m = params.beta1 * m + (1 - params.beta1) * g;
    v = params.beta2 * v + (1 - params.beta2) * g * g;
    theta -= params.learning_rate * (m / (1 - std::pow(params.beta1, t))) /
             (std::sqrt(v / (1 - std::pow(params.beta2, t))) + params.eps);
    adapter.gradient.fill_(g);
    ApplyAdamW(adapter, params);
    CHECK(adapter.parameters[0].item<double>() == Approx(theta).epsilon(1e-5));
  }
  CHECK(adapter.num_steps == 4);
}

TEST_CASE("ApplyAdamW: clips by the global norm and reports it before clipping", "[adamw]") {
  Adapter adapter = SmallAdapter();
  adapter.gradient.zero_();
  adapter.gradient[0].fill_(3);
  adapter.gradient[1].fill_(4);
  const auto metrics = ApplyAdamW(adapter, {.grad_clip_norm = 0.5});
  CHECK(Metric(metrics, "grad_norm") == Approx(5));
  // m = (1 - beta1) * clipped gradient, and the gradient was scaled by 0.5 / 5.
  CHECK(adapter.exp_avg[1].item<double>() == Approx(0.1 * 0.4).epsilon(1e-4));
}

TEST_CASE("ApplyAdamW: clears gradient and window, and makes a new version", "[adamw]") {
  Adapter adapter = SmallAdapter();
  const auto before = adapter.Publish();
  adapter.gradient.fill_(1);
  adapter.window = {4, 5};
  ApplyAdamW(adapter, {});
  CHECK(adapter.window.empty());
  CHECK(adapter.gradient.abs().max().item<double>() == 0);
  CHECK(adapter.Publish() != before);
}

TEST_CASE("ApplyAdamW: a zero gradient is a step, and leaves fresh weights in place", "[adamw]") {
  Adapter adapter = SmallAdapter();
  const at::Tensor before = adapter.parameters.clone();
  const auto metrics = ApplyAdamW(adapter, {});
  CHECK(at::equal(adapter.parameters, before));
  CHECK(adapter.num_steps == 1);
  CHECK(Metric(metrics, "grad_norm") == 0);
}

TEST_CASE("ApplyAdamW: a gradient that is not finite is skipped, reported and dropped", "[adamw]") {
  const double bad =
      GENERATE(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
  Adapter adapter = SmallAdapter();
  adapter.gradient.fill_(1);
  ApplyAdamW(adapter, {});
  const at::Tensor weights = adapter.parameters.clone();
  const at::Tensor moment = adapter.exp_avg.clone();
  adapter.gradient[2].fill_(bad);
  adapter.window = {7};
  const auto metrics = ApplyAdamW(adapter, {});
  CHECK(at::equal(adapter.parameters, weights));
  CHECK(at::equal(adapter.exp_avg, moment));
  CHECK(adapter.num_steps == 1);
  CHECK(adapter.window.empty());
  CHECK(adapter.gradient.abs().max().item<double>() == 0);
  CHECK(Metric(metrics, "skipped_nonfinite_gradient") == 1);
  CHECK_FALSE(HasMetric(metrics, "grad_norm"));
}

}  // namespace lathe::worker
