#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "services/worker/spec/dense_decoder.h"
#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

Adapter TinyAdapter() {
  const DecoderSpec model = DenseDecoder({.family = "qwen3",
                                          .num_layers = 1,
                                          .hidden_size = 4,
                                          .intermediate_size = 4,
                                          .num_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_dim = 4,
                                          .vocab_size = 4});
  return Adapter(WholeModel(model), {.rank = 1, .seed = 3}, at::kCPU);
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
  Adapter adapter = TinyAdapter();
  double theta = adapter.parameters()[0].item<double>();
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
    REQUIRE(ApplyAdamW(adapter, params).ok());
    CHECK(adapter.parameters()[0].item<double>() == Approx(theta).epsilon(1e-5));
  }
  CHECK(adapter.num_steps == 4);
}

TEST_CASE("ApplyAdamW: clips by the global norm and reports it before clipping", "[adamw]") {
  Adapter adapter = TinyAdapter();
  adapter.gradient.zero_();
  adapter.gradient[0].fill_(3);
  adapter.gradient[1].fill_(4);
  const auto metrics = *ApplyAdamW(adapter, {.grad_clip_norm = 0.5});
  CHECK(Metric(metrics, "grad_norm") == Approx(5));
  // m = (1 - beta1) * clipped gradient; clipping scaled the gradient by 0.5 / 5.
  CHECK(adapter.exp_avg[1].item<double>() == Approx(0.1 * 0.4).epsilon(1e-4));
}

TEST_CASE("ApplyAdamW: clears gradient and window, and makes a new version", "[adamw]") {
  Adapter adapter = TinyAdapter();
  const auto before = adapter.Publish();
  adapter.gradient.fill_(1);
  adapter.window = {4, 5};
  REQUIRE(ApplyAdamW(adapter, {}).ok());
  CHECK(adapter.window.empty());
  CHECK(adapter.gradient.abs().max().item<double>() == 0);
  CHECK(adapter.Publish() != before);
}

TEST_CASE("ApplyAdamW: held weights stay as they are, and holding them changes no bit", "[adamw]") {
  Adapter held = TinyAdapter();
  Adapter free = TinyAdapter();
  std::vector<std::shared_ptr<const AdapterWeights>> versions;
  std::vector<at::Tensor> copies;
  for (int t = 0; t < 5; ++t) {
    held.gradient.fill_(0.3 * t - 0.5);
    free.gradient.fill_(0.3 * t - 0.5);
    if (t == 3) versions.front() = nullptr;
    versions.push_back(held.Publish());
    copies.push_back(held.parameters().clone());
    REQUIRE(ApplyAdamW(held, {.learning_rate = 0.1}).ok());
    REQUIRE(ApplyAdamW(free, {.learning_rate = 0.1}).ok());
    CHECK(at::equal(held.parameters(), free.parameters()));
  }
  for (size_t i = 1; i < versions.size(); ++i) {
    CHECK(at::equal(versions[i]->tensors.flat, copies[i]));
  }
}

TEST_CASE("ApplyAdamW: a zero gradient is a step, and leaves fresh weights in place", "[adamw]") {
  Adapter adapter = TinyAdapter();
  const at::Tensor before = adapter.parameters().clone();
  const auto metrics = *ApplyAdamW(adapter, {});
  CHECK(at::equal(adapter.parameters(), before));
  CHECK(adapter.num_steps == 1);
  CHECK(Metric(metrics, "grad_norm") == 0);
}

TEST_CASE("ApplyAdamW: a gradient that is not finite is skipped, reported and dropped", "[adamw]") {
  const double bad =
      GENERATE(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
  Adapter adapter = TinyAdapter();
  adapter.gradient.fill_(1);
  REQUIRE(ApplyAdamW(adapter, {}).ok());
  const at::Tensor weights = adapter.parameters().clone();
  const at::Tensor moment = adapter.exp_avg.clone();
  adapter.gradient[2].fill_(bad);
  adapter.window = {7};
  const auto metrics = *ApplyAdamW(adapter, {});
  CHECK(at::equal(adapter.parameters(), weights));
  CHECK(at::equal(adapter.exp_avg, moment));
  CHECK(adapter.num_steps == 1);
  CHECK(adapter.window.empty());
  CHECK(adapter.gradient.abs().max().item<double>() == 0);
  CHECK(Metric(metrics, "nonfinite_gradients") == 1);
  CHECK_FALSE(HasMetric(metrics, "grad_norm"));
}

TEST_CASE("ApplyAdamW: under kFail such a gradient fails the step, and is dropped", "[adamw]") {
  Adapter adapter = TinyAdapter();
  const at::Tensor weights = adapter.parameters().clone();
  adapter.gradient[2].fill_(std::numeric_limits<double>::infinity());
  adapter.window = {7};
  const auto metrics = ApplyAdamW(adapter, {}, NonFiniteGradients::kFail);
  CHECK(metrics.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(at::equal(adapter.parameters(), weights));
  CHECK(adapter.num_steps == 0);
  CHECK(adapter.window.empty());
  CHECK(adapter.gradient.abs().max().item<double>() == 0);
}

TEST_CASE("ApplyAdamW: under kApply such a gradient is stepped with and reported", "[adamw]") {
  Adapter adapter = TinyAdapter();
  adapter.gradient.fill_(1);
  adapter.gradient[2].fill_(std::numeric_limits<double>::quiet_NaN());
  const auto metrics = *ApplyAdamW(adapter, {}, NonFiniteGradients::kApply);
  CHECK(std::isnan(adapter.parameters()[2].item<double>()));
  CHECK(std::isfinite(adapter.parameters()[1].item<double>()));
  CHECK(adapter.num_steps == 1);
  CHECK(Metric(metrics, "nonfinite_gradients") == 1);
  CHECK_FALSE(HasMetric(metrics, "update_norm"));
}

TEST_CASE("ApplyAdamW: update_norm is the norm of the change of the weights", "[adamw]") {
  Adapter adapter = TinyAdapter();
  const at::Tensor before = adapter.parameters().to(at::kDouble);
  adapter.gradient.normal_(0, 1);
  const auto metrics = *ApplyAdamW(adapter, {.learning_rate = 0.1, .weight_decay = 0.1});
  const double expected = (adapter.parameters().to(at::kDouble) - before).norm().item<double>();
  CHECK(Metric(metrics, "update_norm") == Approx(expected));
}

TEST_CASE("ApplyAdamW: many blocks follow torch's fused step, whatever the number of threads",
          "[adamw]") {
  const DecoderSpec model = DenseDecoder({.family = "qwen3",
                                          .num_layers = 1,
                                          .hidden_size = 64,
                                          .intermediate_size = 48,
                                          .num_heads = 2,
                                          .num_kv_heads = 1,
                                          .head_dim = 16,
                                          .vocab_size = 5003});
  const AdamParams params{
      .learning_rate = 1e-3, .eps = 1e-8, .weight_decay = 0.01, .grad_clip_norm = 0.5};
  Adapter one(WholeModel(model), {.rank = 17, .seed = 3}, at::kCPU);
  Adapter two(WholeModel(model), {.rank = 17, .seed = 3}, at::kCPU);
  const at::Tensor weights = one.parameters().clone();
  const at::Tensor m = at::zeros_like(weights);
  const at::Tensor v = at::zeros_like(weights);
  const int num_threads = at::get_num_threads();
  for (int t = 1; t <= 3; ++t) {
    const at::Tensor gradient = at::randn_like(weights);
    one.gradient.copy_(gradient);
    two.gradient.copy_(gradient);
    at::set_num_threads(1);
    const auto metrics = *ApplyAdamW(one, params);
    at::set_num_threads(3);
    const auto metrics_of_two = *ApplyAdamW(two, params);
    at::set_num_threads(num_threads);
    CHECK(Metric(metrics, "grad_norm") == Metric(metrics_of_two, "grad_norm"));
    CHECK(Metric(metrics, "update_norm") == Metric(metrics_of_two, "update_norm"));
    at::_fused_adamw_({weights}, {gradient * (0.5 / (Metric(metrics, "grad_norm") + 1e-6))}, {m},
                      {v}, {}, {at::full({}, t, at::kFloat)}, params.learning_rate, params.beta1,
                      params.beta2, params.weight_decay, params.eps, false, false);
  }
  CHECK(one.num_parameters() > 5 * 16384);
  CHECK(at::equal(one.parameters(), two.parameters()));
  CHECK((one.parameters() - weights).abs().max().item<double>() < 1e-6);
}

}  // namespace lathe::worker
