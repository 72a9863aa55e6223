#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "services/worker/spec/dense_decoder.h"
#include "services/worker/testing/test_parts.h"
#include "services/worker/testing/test_rank_groups.h"
#include "services/worker/training/adamw.h"

namespace lathe::worker {
namespace {

DecoderSpec Spec(int64_t num_kv_heads) {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 2,
                       .hidden_size = 16,
                       .intermediate_size = 12,
                       .num_heads = 4,
                       .num_kv_heads = num_kv_heads,
                       .head_dim = 6,
                       .vocab_size = 61});
}

struct StepGrid {
  int data = 1;
  int tp = 1;
  int64_t num_kv_heads = 2;
};

// Returns numbers with few bits, whose sums and sums of squares are exact in any order.
at::Tensor ExactRandom(at::IntArrayRef sizes, at::Generator generator) {
  return at::randint(-256, 257, sizes, generator, at::kFloat).mul_(1.0 / 64);
}

// The whole gradient of one step, and the ranks' shares that add up to it.
struct Gradients {
  at::Tensor whole;                // for one rank
  std::vector<at::Tensor> shares;  // of each rank, in its layout
};

Gradients MakeGradients(const StepGrid& grid, const LoraSpec& lora, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const ModelPart whole = WholeModel(Spec(grid.num_kv_heads));
  Gradients gradients{.whole = at::zeros({NumAdapterParameters(whole, lora)}, at::kFloat)};
  for (int row = 0; row < grid.data; ++row) {
    // In every third window only one data rank has a gradient.
    const bool has_part = seed % 3 != 0 || row == grid.data - 1;
    at::Tensor rest = has_part ? ExactRandom(gradients.whole.sizes(), generator)
                               : at::zeros_like(gradients.whole);
    gradients.whole.add_(rest);
    for (const ModelPart& part : TestParts(whole.whole, grid.tp)) {
      at::Tensor share = CutFlat(rest, part, lora);
      for (const AdapterMatrix& matrix : AdapterLayout(part, lora)) {
        const at::Tensor own = matrix.FactorOf(share);
        const int64_t place = part.place.index % matrix.num_holders;
        // The last holder has the remainder.
        at::Tensor others = at::zeros_like(own);
        for (int64_t i = 0; i + 1 < matrix.num_holders; ++i) {
          const at::Generator of_holder = at::make_generator<at::CPUGeneratorImpl>(
              seed * 1000 + row * 100 + i * 10 + part.place.index / matrix.num_holders);
          const at::Tensor random = has_part ? ExactRandom(own.sizes(), of_holder) : others;
          if (i == place) own.copy_(random);
          others = others + random;
        }
        if (place == matrix.num_holders - 1) own.sub_(others);
      }
      gradients.shares.push_back(share);
    }
  }
  return gradients;
}

using Metrics = std::map<std::string, double>;

Metrics ByName(const std::vector<NamedMetric>& metrics) {
  Metrics by_name;
  for (const NamedMetric& metric : metrics) by_name[metric.name] = metric.value;
  return by_name;
}

constexpr int kNumSteps = 10;

std::vector<LoraSpec> ThreeAdapters() {
  return {{.rank = 3, .seed = 5},
          {.rank = 5, .seed = 6, .target_modules = LoraModulesOf(true, false, false)},
          {.rank = 2, .seed = 7, .target_modules = LoraModulesOf(false, true, true)}};
}

// Returns parameters that clip in every other step.
AdamParams ParamsOf(int step) {
  return {.learning_rate = 0.01 * (step + 1),
          .eps = 1e-8,
          .weight_decay = 0.1,
          .grad_clip_norm = step % 2 == 0 ? 1.0 : 0.0};
}

struct Trained {
  at::Tensor weights;
  at::Tensor exp_avg_sq;
  std::vector<Metrics> metrics;
};

Trained Train(const ModelPart& part, const LoraSpec& lora, const RankGroups& ranks,
              const std::vector<at::Tensor>& gradients) {
  Adapter adapter(part, lora, at::kCPU);
  Trained trained;
  for (int step = 0; step < kNumSteps; ++step) {
    adapter.gradient.copy_(gradients[step]);
    const auto metrics =
        ApplyAdamW(adapter, ParamsOf(step), NonFiniteGradients::kSkip, {.groups = ranks});
    trained.metrics.push_back(ByName(metrics.value()));
  }
  trained.weights = adapter.parameters();
  trained.exp_avg_sq = adapter.exp_avg_sq;
  return trained;
}

// Returns each rank's error message; empty if it has none.
template <typename Body>
std::vector<std::string> ErrorsOfRanks(int data, int tp, const Body& body) {
  return AsMesh(data, tp, [&](const RankGroups& ranks) -> std::string {
    try {
      body(ranks);
      return {};
    } catch (const RanksDisagree& error) {
      return std::string(error.status.message());
    }
  });
}

}  // namespace

TEST_CASE("ApplyAdamW: ranks that share an adapter step as one rank does, bit for bit",
          "[adamw][ranks]") {
  const StepGrid grid = GENERATE(StepGrid{1, 2}, StepGrid{1, 4}, StepGrid{1, 4, 1}, StepGrid{2, 1},
                                 StepGrid{3, 1}, StepGrid{2, 2}, StepGrid{2, 4}, StepGrid{2, 2, 1});
  INFO("data " << grid.data << " tp " << grid.tp << " KV heads " << grid.num_kv_heads);
  for (const LoraSpec& lora : ThreeAdapters()) {
    std::vector<at::Tensor> whole;
    std::vector<std::vector<at::Tensor>> shares(grid.data * grid.tp);
    for (int step = 0; step < kNumSteps; ++step) {
      const Gradients gradients = MakeGradients(grid, lora, 10 * lora.seed + step);
      whole.push_back(gradients.whole);
      for (size_t r = 0; r < shares.size(); ++r) shares[r].push_back(gradients.shares[r]);
    }
    const DecoderSpec spec = Spec(grid.num_kv_heads);
    const Trained alone = Train(WholeModel(spec), lora, {}, whole);
    CHECK(alone.metrics[0].at("grad_norm") > 1);  // so the step is clipped
    const std::vector<Trained> ranks = AsMesh(grid.data, grid.tp, [&](const RankGroups& groups) {
      const ModelPart part = TestPart(spec, groups.tp.rank(), grid.tp);
      return Train(part, lora, groups, shares[groups.all.rank()]);
    });
    for (size_t r = 0; r < ranks.size(); ++r) {
      const ModelPart part = TestPart(spec, static_cast<int64_t>(r) % grid.tp, grid.tp);
      CHECK(at::equal(ranks[r].weights, CutFlat(alone.weights, part, lora)));
      CHECK(at::equal(ranks[r].exp_avg_sq, CutFlat(alone.exp_avg_sq, part, lora)));
      CHECK(ranks[r].metrics == ranks[0].metrics);
      for (int step = 0; step < kNumSteps; ++step) {
        const Metrics& metrics = ranks[r].metrics[step];
        CHECK(metrics.at("grad_norm") == alone.metrics[step].at("grad_norm"));
        CHECK(metrics.at("update_norm") == Approx(alone.metrics[step].at("update_norm")));
      }
    }
  }
}

TEST_CASE("ApplyAdamW: a gradient that is not finite on one rank is dropped by all",
          "[adamw][ranks]") {
  const DecoderSpec spec = Spec(2);
  const LoraSpec lora{.rank = 3, .seed = 5};
  const int bad_rank = GENERATE(0, 3, 6);
  const int range = GENERATE(0, 1, 2);
  const double bad =
      GENERATE(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
  const auto policy = GENERATE(NonFiniteGradients::kSkip, NonFiniteGradients::kFail);
  const std::vector<int> is_right = AsMesh(2, 4, [&](const RankGroups& ranks) -> int {
    Adapter adapter(TestPart(spec, ranks.tp.rank(), 4), lora, at::kCPU);
    const at::Tensor before = adapter.parameters().clone();
    adapter.gradient.fill_(0.5);
    adapter.window = {3};
    const AdapterSizes& sizes = adapter.sizes();
    const int64_t first[] = {0, sizes.summed, sizes.summed + sizes.shared};
    if (ranks.all.rank() == bad_rank) adapter.gradient[first[range] + 1].fill_(bad);
    const auto metrics = ApplyAdamW(adapter, {}, policy, {.groups = ranks});
    const bool is_notified = policy == NonFiniteGradients::kFail
                                 ? absl::IsFailedPrecondition(metrics.status())
                                 : ByName(metrics.value()).at("nonfinite_gradients") == 1;
    return is_notified && at::equal(adapter.parameters(), before) && adapter.num_steps == 0 &&
           adapter.window.empty() && adapter.gradient.abs().max().item<double>() == 0;
  });
  CHECK(is_right == std::vector<int>(8, 1));
}

TEST_CASE("ApplyAdamW: ranks whose weights have come apart are found out, all with one error",
          "[adamw][ranks]") {
  const DecoderSpec spec = Spec(2);
  const LoraSpec lora{.rank = 3, .seed = 5};
  const int range = GENERATE(0, 1, 2);
  const std::vector<std::string> errors = ErrorsOfRanks(2, 4, [&](const RankGroups& ranks) {
    Adapter adapter(TestPart(spec, ranks.tp.rank(), 4), lora, at::kCPU);
    const AdapterSizes& sizes = adapter.sizes();
    const int64_t first[] = {0, sizes.summed, sizes.summed + sizes.shared};
    if (ranks.all.rank() == 7) {
      auto* const weight = adapter.MutableParameters().mutable_data_ptr<float>() + first[range];
      *weight = std::nextafter(*weight, 1.0f);
    }
    ApplyAdamW(adapter, {}, NonFiniteGradients::kSkip,
               {.groups = ranks, .name = "model m, optim_step 4"})
        .IgnoreError();
  });
  const std::string other = range == 0 ? "0" : range == 1 ? "2" : "3";
  CHECK(errors == std::vector<std::string>(
                      8, "model m, optim_step 4: ranks hold different weights: 7 from " + other));
}

}  // namespace lathe::worker
