#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libs/common/losses/registry.h"
#include "services/worker/models/decoder.h"
#include "services/worker/spec/dense_decoder.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/testing/test_weights.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

// Tolerance for another order of fp32 sums, relative to the largest gradient.
constexpr double kTolerance = 1e-5;

DecoderSpec TrainerSpec() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 2,
                       .hidden_size = 16,
                       .intermediate_size = 24,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 6,
                       .vocab_size = 40,
                       .max_position_embeddings = 64,
                       .rope = {.theta = 1e4},
                       .tie_word_embeddings = true});
}

DecoderWeights RandomWeights(const DecoderSpec& spec) {
  return MakeWeights(
      spec,
      [](int64_t n, int64_t k) {
        return BaseWeight(at::randn({n, k}) * 0.3);
      },
      [](int64_t size) { return at::rand({size}) + 0.5; });
}

const Model& TrainerModel() {
  static const Decoder* model = [] {
    at::manual_seed(11);
    return new Decoder(WholeModel(TrainerSpec()), RandomWeights(TrainerSpec()));
  }();
  return *model;
}

// Returns an adapter with non-zero B, so that every factor has a gradient.
std::shared_ptr<Adapter> MakeAdapter(int64_t rank, uint64_t seed) {
  auto adapter = std::make_shared<Adapter>(WholeModel(TrainerSpec()),
                                           LoraSpec{.rank = rank, .seed = seed}, at::kCPU);
  at::manual_seed(seed);
  adapter->MutableParameters().normal_(0, 0.1);
  return adapter;
}

TrainDatum Datum(size_t length, int32_t first_token, float advantage = 1.0f) {
  TrainDatum datum;
  for (size_t i = 0; i < length; ++i) {
    datum.tokens.push_back((first_token + 7 * static_cast<int32_t>(i)) % 40);
    datum.targets.push_back((first_token + 7 * static_cast<int64_t>(i) + 7) % 40);
    datum.weights.push_back(i == 0 ? 0.0f : 0.5f);
    datum.logprobs.push_back(-3.5f);
    datum.advantages.push_back(i == 0 ? 0.0f : advantage);
  }
  return datum;
}

TrainRequest Request(const std::string& id, const std::string& model_id, int64_t seq_id,
                     std::string_view loss, std::vector<TrainDatum> data) {
  return {.request_id = id,
          .model_id = model_id,
          .seq_id = seq_id,
          .forward_only = false,
          .loss = DefaultLoss(loss),
          .data = std::move(data)};
}

// A trainer with its own adapters over the shared model.
struct Bench {
  explicit Bench(TrainerOptions options = {}) : trainer(TrainerModel(), adapters, options) {
    adapters.Put("m1", MakeAdapter(3, 1));
    adapters.Put("m2", MakeAdapter(7, 2));
  }

  std::map<std::string, absl::StatusOr<TrainOutput>> Run(std::vector<TrainRequest> requests) {
    trainer.Begin({std::move(requests)});
    while (trainer.RunUnit()) {
    }
    std::map<std::string, absl::StatusOr<TrainOutput>> outputs;
    for (FinishedRequest& finished : trainer.TakeFinished()) {
      outputs.emplace(finished.request_id, std::move(finished.output));
    }
    return outputs;
  }

  at::Tensor Gradient(const std::string& model_id) {
    return adapters.Find(model_id)->gradient.clone();
  }

  AdapterPool adapters;
  Trainer trainer;
};

// Returns the total loss of `requests` for adapter m1 with one parameter changed by `delta`.
double LossAt(const std::vector<TrainRequest>& requests, int64_t parameter, double delta) {
  Bench bench;
  const auto adapter = bench.adapters.Find("m1");
  adapter->MutableParameters()[parameter].add_(delta);
  double loss = 0;
  for (const auto& [id, output] : bench.Run(requests)) loss += output->metrics[0].value;
  return loss;
}

}  // namespace

TEST_CASE("Trainer: gradients are the numeric derivatives of loss:sum", "[training]") {
  const std::string loss = GENERATE("cross_entropy", "importance_sampling", "dro");
  const std::vector<TrainRequest> requests = {
      Request("r", "m1", 1, loss, {Datum(9, 3), Datum(5, 20)})};
  Bench bench;
  REQUIRE(bench.Run(requests).at("r").ok());
  const at::Tensor gradient = bench.Gradient("m1");
  const double scale = gradient.abs().max().item<double>();
  for (int64_t parameter = 5; parameter < gradient.numel(); parameter += gradient.numel() / 23) {
    constexpr double kStep = 3e-3;
    const double numeric =
        (LossAt(requests, parameter, kStep) - LossAt(requests, parameter, -kStep)) / (2 * kStep);
    CHECK(gradient[parameter].item<double>() == Approx(numeric).margin(2e-3 * scale));
  }
}

TEST_CASE("Trainer: gspo has one ratio a datum, however its rows are cut", "[training]") {
  // Two datums and head chunks of four rows: no chunk holds a whole datum.
  TrainRequest request = Request("r", "m1", 1, "gspo", {Datum(9, 3), Datum(11, 20, -0.5f)});
  request.loss.clip_low = 0.0;
  request.loss.clip_high = 1e3;
  for (TrainDatum& datum : request.data) {
    datum.mask.assign(datum.tokens.size(), 1.0f);
    datum.mask[0] = datum.mask[1] = 0.0f;
  }
  Bench whole, cut({.head_chunk_elements = 4 * 40});
  auto outputs = whole.Run({request});
  const double loss = outputs.at("r")->metrics[0].value;
  CHECK(cut.Run({request}).at("r")->metrics[0].value == Approx(loss));
  CHECK(RelativeDiff(cut.Gradient("m1"), whole.Gradient("m1")) < kTolerance);

  double expected = 0;
  for (size_t i = 0; i < request.data.size(); ++i) {
    const TrainDatum& datum = request.data[i];
    const std::vector<float>& p = outputs.at("r")->logprobs[i];
    double log_ratio = 0, advantage = 0;
    for (size_t t = 0; t < p.size(); ++t) {
      if (t >= 2) log_ratio += (p[t] - datum.logprobs[t]) / static_cast<double>(p.size() - 2);
      advantage += datum.advantages[t];
    }
    expected -= std::exp(log_ratio) * advantage;
  }
  CHECK(loss == Approx(expected));
}

TEST_CASE("Trainer: packed with another adapter's rank and loss, a request is as if alone",
          "[training]") {
  const TrainRequest one = Request("a", "m1", 1, "cross_entropy", {Datum(9, 1), Datum(4, 2)});
  const TrainRequest two = Request("b", "m2", 1, "ppo", {Datum(6, 3, -1.0f)});
  Bench together, alone;
  auto outputs = together.Run({one, two});
  auto first = alone.Run({one});
  auto second = alone.Run({two});
  CHECK(together.trainer.counters().train_passes == 1);
  CHECK(RelativeDiff(together.Gradient("m1"), alone.Gradient("m1")) < kTolerance);
  CHECK(RelativeDiff(together.Gradient("m2"), alone.Gradient("m2")) < kTolerance);
  CHECK(outputs.at("a")->metrics[0].value == Approx(first.at("a")->metrics[0].value));
  CHECK(outputs.at("b")->metrics[0].value == Approx(second.at("b")->metrics[0].value));
}

TEST_CASE("Trainer: cutting a request into micro-batches and head chunks changes nothing",
          "[training]") {
  const TrainRequest request =
      Request("r", "m1", 4, "importance_sampling", {Datum(9, 1), Datum(4, 2), Datum(12, 30)});
  Bench whole;
  Bench cut({.token_budget = 10, .head_chunk_elements = 3 * 40});
  auto expected = whole.Run({request});
  auto outputs = cut.Run({request});
  CHECK(cut.trainer.counters().train_passes == 3);
  CHECK(RelativeDiff(cut.Gradient("m1"), whole.Gradient("m1")) < kTolerance);
  for (size_t i = 0; i < 3; ++i) {
    const auto& a = outputs.at("r")->logprobs[i];
    const auto& b = expected.at("r")->logprobs[i];
    REQUIRE(a.size() == b.size());
    for (size_t t = 0; t < a.size(); ++t) CHECK(a[t] == Approx(b[t]).margin(1e-5));
  }
  CHECK(cut.adapters.Find("m1")->window == std::set<int64_t>{4});
}

TEST_CASE("Trainer: gradients of several requests add up in the window", "[training]") {
  const TrainRequest one = Request("a", "m1", 1, "cross_entropy", {Datum(9, 1)});
  const TrainRequest two = Request("b", "m1", 2, "cross_entropy", {Datum(5, 8)});
  Bench together, first, second;
  together.Run({one});
  together.Run({two});
  first.Run({one});
  second.Run({two});
  CHECK(together.adapters.Find("m1")->window == std::set<int64_t>{1, 2});
  CHECK(RelativeDiff(together.Gradient("m1"), first.Gradient("m1") + second.Gradient("m1")) <
        kTolerance);
}

TEST_CASE("Trainer: forward_only returns logprobs and leaves no trace", "[training]") {
  TrainRequest request = Request("r", "m1", 1, "cross_entropy", {Datum(9, 1)});
  Bench backward, forward;
  auto expected = backward.Run({request});
  request.forward_only = true;
  auto outputs = forward.Run({request});
  for (size_t i = 0; i < 9; ++i) {
    CHECK(outputs.at("r")->logprobs[0][i] == Approx(expected.at("r")->logprobs[0][i]));
  }
  CHECK(outputs.at("r")->metrics[0].value == Approx(expected.at("r")->metrics[0].value));
  CHECK(IsZero(forward.Gradient("m1")));
  CHECK(forward.adapters.Find("m1")->window.empty());
}

TEST_CASE("Trainer: a forward_only neighbour adds nothing to the gradient", "[training]") {
  const TrainRequest request = Request("r", "m1", 1, "cross_entropy", {Datum(9, 1)});
  TrainRequest neighbour = Request("f", "m1", 2, "importance_sampling", {Datum(6, 1), Datum(9, 4)});
  neighbour.forward_only = true;
  Bench together, alone;
  together.Run({neighbour, request});
  alone.Run({request});
  CHECK(together.trainer.counters().train_passes == 1);
  CHECK(RelativeDiff(together.Gradient("m1"), alone.Gradient("m1")) < kTolerance);
}

TEST_CASE("Trainer: several targets of a position equal that position repeated", "[training]") {
  TrainDatum soft = Datum(3, 5);
  soft.num_targets = 2;
  soft.targets = {1, 2, 3, 4, 5, 5};
  soft.weights = {0.5f, 0.25f, 1, 0, 0.5f, 0.5f};
  TrainDatum first = Datum(3, 5), second = Datum(3, 5);
  first.targets = {1, 3, 5};
  first.weights = {0.5f, 1, 0.5f};
  second.targets = {2, 4, 5};
  second.weights = {0.25f, 0, 0.5f};
  Bench together, apart;
  auto outputs = together.Run({Request("r", "m1", 1, "cross_entropy", {soft})});
  apart.Run({Request("r", "m1", 1, "cross_entropy", {first, second})});
  CHECK(outputs.at("r")->logprobs[0].size() == 6);
  CHECK(RelativeDiff(together.Gradient("m1"), apart.Gradient("m1")) < kTolerance);
}

TEST_CASE("Trainer: a request whose loss is not finite fails alone and adds nothing",
          "[training]") {
  TrainDatum bad = Datum(6, 2);
  bad.logprobs.assign(6, -300.0f);
  const TrainRequest good = Request("good", "m1", 1, "importance_sampling", {Datum(9, 1)});
  // The first datum is valid, so part of the request may be done before the bad one fails.
  const TrainRequest failing = Request("bad", "m1", 2, "importance_sampling", {Datum(8, 4), bad});
  const int64_t token_budget = GENERATE(100, 8);
  Bench together({.token_budget = token_budget});
  Bench alone;
  auto outputs = together.Run({good, failing});
  alone.Run({good});
  REQUIRE(outputs.at("good").ok());
  REQUIRE(outputs.at("bad").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(outputs.at("bad").status().message()), Catch::Contains("datum 1"));
  CHECK(together.adapters.Find("m1")->window == std::set<int64_t>{1});
  CHECK(RelativeDiff(together.Gradient("m1"), alone.Gradient("m1")) < kTolerance);
}

TEST_CASE("Trainer: a reference that no policy can follow is named", "[training]") {
  TrainDatum datum = Datum(5, 1);
  datum.reference_logprobs = {0, -3, 1e38f, -3, -3};
  TrainRequest request = Request("a", "m1", 1, GENERATE("cross_entropy", "ppo"), {datum});
  request.loss.kl_coef = 0.1;
  Bench bench;
  const absl::Status status = bench.Run({request}).at("a").status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("position 2 of datum 0: reference_logprobs is 1e+38"));
  CHECK(IsZero(bench.Gradient("m1")));
}

TEST_CASE("Trainer: diverged weights fail the request and spare the neighbour", "[training]") {
  Bench bench;
  bench.adapters.Find("m1")->MutableParameters().fill_(std::numeric_limits<float>::quiet_NaN());
  auto outputs = bench.Run({Request("a", "m1", 1, "cross_entropy", {Datum(4, 1)}),
                            Request("b", "m2", 1, "cross_entropy", {Datum(4, 1)})});
  CHECK(outputs.at("a").status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(IsZero(bench.Gradient("m1")));
  REQUIRE(outputs.at("b").ok());
  CHECK(bench.Gradient("m2").isfinite().all().item<bool>());
}

TEST_CASE("Trainer: a pass that throws fails its requests, the next one runs", "[training]") {
  Bench bench;
  TrainDatum outside = Datum(4, 1);
  outside.tokens[2] = 4000;  // the engine rejects it; here the embedding throws
  auto outputs = bench.Run({Request("a", "m1", 1, "cross_entropy", {outside})});
  CHECK(outputs.at("a").status().code() == absl::StatusCode::kInternal);
  CHECK(IsZero(bench.Gradient("m1")));
  CHECK(bench.Run({Request("b", "m1", 2, "cross_entropy", {Datum(4, 1)})}).at("b").ok());
}

TEST_CASE("Trainer: a model that is not here fails the request", "[training]") {
  Bench bench;
  auto outputs = bench.Run({Request("a", "gone", 1, "cross_entropy", {Datum(4, 1)})});
  CHECK(outputs.at("a").status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Trainer: a model dropped during its request fails it", "[training]") {
  Bench bench;
  bench.trainer.Begin({{Request("a", "m1", 1, "cross_entropy", {Datum(4, 1)})}});
  REQUIRE(bench.trainer.RunUnit());
  bench.adapters.Drop("m1");
  while (bench.trainer.RunUnit()) {
  }
  const auto finished = bench.trainer.TakeFinished();
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].output.status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace lathe::worker
