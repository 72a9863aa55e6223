#include <catch2/catch.hpp>

#include <random>

#include "services/worker/lora/adapter.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {
namespace {

// Sizes that are not multiples of a vector's width and fill several tiles and threads.
constexpr int64_t kHidden = 600;
constexpr int64_t kIntermediate = 1100;

// Relative to the largest entry: sums have at most kIntermediate fp32 terms.
constexpr double kTolerance = 2e-6;

DecoderSpec TestModel() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 1,
                       .hidden_size = kHidden,
                       .intermediate_size = kIntermediate,
                       .num_heads = 2,
                       .num_kv_heads = 1,
                       .head_dim = 20,
                       .vocab_size = 9001});
}

// Rows of the table of linears.
constexpr int64_t kQueryRow = 0;
constexpr int64_t kGateRow = 4;
constexpr int64_t kUpRow = 5;
constexpr int64_t kHeadRow = 7;

// An adapter whose B is not zero.
std::shared_ptr<const AdapterWeights> TrainedAdapter(LoraSpec lora) {
  Adapter adapter(WholeModel(TestModel()), lora, at::kCPU);
  at::manual_seed(lora.seed);
  adapter.MutableParameters().normal_(0, 0.2);
  return adapter.Publish();
}

AdapterGradients ZeroGradients(const AdapterWeights& adapter) {
  return Adapter(WholeModel(TestModel()), adapter.lora, at::kCPU).MakeGradients();
}

double RelativeDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

at::Tensor Expected(const at::Tensor& x, const AdapterWeights& adapter, int64_t linear) {
  const LoraPair& pair = adapter.tensors.linears[linear];
  return x.to(at::kDouble).mm(pair.a.t().to(at::kDouble)).mm(pair.b_t.to(at::kDouble)) *
         adapter.scaling;
}

// Rows of three adapters, of no adapter, and of a second request of the first adapter.
struct Mixture {
  std::shared_ptr<const AdapterWeights> narrow = TrainedAdapter({.rank = 1, .seed = 1});
  std::shared_ptr<const AdapterWeights> wide = TrainedAdapter({.rank = 45, .seed = 2});
  std::shared_ptr<const AdapterWeights> no_mlp =
      TrainedAdapter({.rank = 8, .seed = 3, .target_modules = LoraModulesOf(true, false, true)});
  std::vector<Segment> segments = {{0, 37, narrow.get(), 0},   {37, 50, nullptr},
                                   {50, 91, wide.get(), 1},    {91, 92, no_mlp.get(), 2},
                                   {92, 95, narrow.get(), -1}, {95, 200, narrow.get(), 0},
                                   {200, 201, wide.get(), 1}};
  static constexpr int64_t kRows = 201;
};

// The outputs of `linears`, side by side as in a stacked projection.
struct Stacked {
  at::Tensor all;
  std::vector<LoraPart> parts;
};

Stacked Stack(const at::Tensor& all, const std::vector<int64_t>& linears,
              const std::vector<int64_t>& widths) {
  Stacked stacked{.all = all, .parts = {}};
  int64_t column = 0;
  for (size_t i = 0; i < linears.size(); ++i) {
    stacked.parts.push_back({linears[i], all.narrow(1, column, widths[i])});
    column += widths[i];
  }
  return stacked;
}

struct BackwardResult {
  at::Tensor dx;
  std::vector<AdapterGradients> gradients;
};

// Runs the backward step over rows [begin, end), starting from the values in `gradients`.
BackwardResult Backward(const Mixture& mixture, const at::Tensor& x, const at::Tensor& dy,
                        int64_t begin, int64_t end, std::vector<AdapterGradients> gradients) {
  std::vector<Segment> segments;
  for (Segment segment : mixture.segments) {
    segment.begin = std::max(segment.begin, begin) - begin;
    segment.end = std::min(segment.end, end) - begin;
    if (segment.begin < segment.end) segments.push_back(segment);
  }
  std::vector<AdapterGradients*> list;
  for (AdapterGradients& g : gradients) list.push_back(&g);
  at::Tensor dx = at::ones({end - begin, kHidden});
  const Stacked stacked = Stack(dy.narrow(0, begin, end - begin), {kQueryRow, kGateRow, kUpRow},
                                {40, kIntermediate, kIntermediate});
  AddLoraBackward(x.narrow(0, begin, end - begin), segments, stacked.parts, list, dx);
  return {dx, std::move(gradients)};
}

std::vector<AdapterGradients> MixtureGradients(const Mixture& mixture) {
  std::vector<AdapterGradients> gradients;
  for (const auto* adapter : {&mixture.narrow, &mixture.wide, &mixture.no_mlp}) {
    gradients.push_back(ZeroGradients(**adapter));
  }
  return gradients;
}

void CheckSameBits(const BackwardResult& a, const BackwardResult& b) {
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    CHECK(at::equal(a.gradients[i].tensors.flat, b.gradients[i].tensors.flat));
  }
}

}  // namespace

TEST_CASE("AddLora: each segment uses its own adapter, whatever its rank and targets", "[lora]") {
  const Mixture mixture;
  at::manual_seed(5);
  const at::Tensor x = at::randn({Mixture::kRows, kHidden + 9}).narrow(1, 3, kHidden);
  const at::Tensor base = at::randn({Mixture::kRows, 40 + 2 * kIntermediate + 7});
  const Stacked y =
      Stack(base.clone(), {kQueryRow, kGateRow, kUpRow}, {40, kIntermediate, kIntermediate});
  AddLora(x, mixture.segments, y.parts);

  const at::Tensor expected = base.to(at::kDouble);
  const Stacked parts =
      Stack(expected, {kQueryRow, kGateRow, kUpRow}, {40, kIntermediate, kIntermediate});
  for (const Segment& segment : mixture.segments) {
    for (const LoraPart& part : parts.parts) {
      if (segment.adapter == nullptr) continue;
      if (!part.Of(segment.adapter->tensors).defined()) continue;
      const int64_t n = segment.end - segment.begin;
      part.y.narrow(0, segment.begin, n)
          .add_(Expected(x.narrow(0, segment.begin, n), *segment.adapter, part.linear));
    }
  }
  CHECK(RelativeDiff(y.all, expected) < kTolerance);
  CHECK(at::equal(y.all.narrow(0, 37, 13), base.narrow(0, 37, 13)));
  CHECK(at::equal(y.all.narrow(1, 40 + 2 * kIntermediate, 7),
                  base.narrow(1, 40 + 2 * kIntermediate, 7)));
}

TEST_CASE("AddLora: with B zero the output is the base's bit for bit", "[lora]") {
  Adapter fresh(WholeModel(TestModel()), {.rank = 5, .seed = 3}, at::kCPU);
  const auto weights = fresh.Publish();
  const at::Tensor base = at::randn({6, kIntermediate});
  const at::Tensor y = base.clone();
  AddLora(at::randn({6, kHidden}), {{0, 6, weights.get()}}, {{kUpRow, y}});
  CHECK(at::equal(y, base));
}

TEST_CASE("AddLora: a row's bits do not depend on its neighbours or its linear's", "[lora]") {
  const Mixture mixture;
  at::manual_seed(6);
  const at::Tensor x = at::randn({Mixture::kRows, kHidden});
  const at::Tensor base = at::randn({Mixture::kRows, 2 * kIntermediate});
  const Stacked y = Stack(base.clone(), {kGateRow, kUpRow}, {kIntermediate, kIntermediate});
  AddLora(x, mixture.segments, y.parts);
  for (const int64_t row : {0, 36, 50, 90, 150, 199, 200}) {
    const AdapterWeights* adapter = nullptr;
    for (const Segment& s : mixture.segments) {
      if (s.begin <= row && row < s.end) adapter = s.adapter;
    }
    const at::Tensor alone = base.narrow(0, row, 1).narrow(1, kIntermediate, kIntermediate).clone();
    AddLora(x.narrow(0, row, 1), {{0, 1, adapter}}, {{kUpRow, alone}});
    CHECK(at::equal(alone, y.parts[1].y.narrow(0, row, 1)));
  }
}

TEST_CASE("AddLora: one row of a wide output has the bits it has among many", "[lora]") {
  const Mixture mixture;
  at::manual_seed(7);
  const at::Tensor h = at::randn({Mixture::kRows, kHidden});
  const at::Tensor logits = at::zeros({Mixture::kRows, 9001});
  AddLora(h, mixture.segments, {{kHeadRow, logits}});
  const at::Tensor alone = at::zeros({1, 9001});
  AddLora(h.narrow(0, 60, 1), {{0, 1, mixture.wide.get()}}, {{kHeadRow, alone}});
  CHECK(at::equal(alone, logits.narrow(0, 60, 1)));
  CHECK(RelativeDiff(alone, Expected(h.narrow(0, 60, 1), *mixture.wide, kHeadRow)) < kTolerance);
}

TEST_CASE("AddLoraBackward: equals autograd in fp64 and skips segments without gradient",
          "[lora]") {
  const Mixture mixture;
  at::manual_seed(8);
  const at::Tensor x = at::randn({Mixture::kRows, kHidden});
  const at::Tensor dy = at::randn({Mixture::kRows, 40 + 2 * kIntermediate});
  const BackwardResult result =
      Backward(mixture, x, dy, 0, Mixture::kRows, MixtureGradients(mixture));

  at::Tensor x64 = x.to(at::kDouble).requires_grad_(true);
  std::vector<AdapterGradients> expected = MixtureGradients(mixture);
  const Stacked parts =
      Stack(dy.to(at::kDouble), {kQueryRow, kGateRow, kUpRow}, {40, kIntermediate, kIntermediate});
  const at::Tensor expected_dx = at::ones({Mixture::kRows, kHidden}, at::kDouble);
  for (const Segment& segment : mixture.segments) {
    if (segment.gradient_index < 0) continue;
    for (const LoraPart& part : parts.parts) {
      const LoraPair& pair = part.Of(segment.adapter->tensors);
      if (!pair.defined()) continue;
      at::Tensor a = pair.a.to(at::kDouble).requires_grad_(true);
      at::Tensor b = pair.b().to(at::kDouble).requires_grad_(true);
      const int64_t n = segment.end - segment.begin;
      at::Tensor rows = x64.detach().narrow(0, segment.begin, n).clone().requires_grad_(true);
      (rows.mm(a.t()).mm(b.t()) * segment.adapter->scaling)
          .backward(part.y.narrow(0, segment.begin, n));
      const LoraPair& gradient = part.Of(expected[segment.gradient_index].tensors);
      gradient.a.add_(a.grad());
      gradient.b().add_(b.grad());
      expected_dx.narrow(0, segment.begin, n).add_(rows.grad());
    }
  }
  CHECK(RelativeDiff(result.dx, expected_dx) < kTolerance);
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(RelativeDiff(result.gradients[i].tensors.flat, expected[i].tensors.flat) < kTolerance);
  }
  CHECK(at::equal(result.dx.narrow(0, 92, 3), at::ones({3, kHidden})));
}

TEST_CASE("AddLoraBackward: rows cut into passes give the bits of one pass", "[lora]") {
  const Mixture mixture;
  at::manual_seed(9);
  const at::Tensor x = at::randn({Mixture::kRows, kHidden});
  const at::Tensor dy = at::randn({Mixture::kRows, 40 + 2 * kIntermediate});
  const BackwardResult whole =
      Backward(mixture, x, dy, 0, Mixture::kRows, MixtureGradients(mixture));
  const unsigned seed = GENERATE(range(0u, 8u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  BackwardResult cut{.dx = {}, .gradients = MixtureGradients(mixture)};
  for (int64_t begin = 0; begin < Mixture::kRows;) {
    const int64_t end = std::min<int64_t>(begin + 1 + random() % 90, Mixture::kRows);
    cut = Backward(mixture, x, dy, begin, end, std::move(cut.gradients));
    CHECK(at::equal(cut.dx, whole.dx.narrow(0, begin, end - begin)));
    begin = end;
  }
  CheckSameBits(whole, cut);
}

TEST_CASE("AddLora, AddLoraBackward: bits do not depend on the number of threads", "[lora]") {
  const Mixture mixture;
  at::manual_seed(10);
  const at::Tensor x = at::randn({Mixture::kRows, kHidden});
  const at::Tensor dy = at::randn({Mixture::kRows, 40 + 2 * kIntermediate});
  const int num_threads = at::get_num_threads();
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    const at::Tensor y = at::ones({Mixture::kRows, 9001});
    AddLora(x, mixture.segments, {{kHeadRow, y}});
    auto result = Backward(mixture, x, dy, 0, Mixture::kRows, MixtureGradients(mixture));
    at::set_num_threads(num_threads);
    return std::make_pair(y, std::move(result));
  };
  const auto one = run(1);
  const auto three = run(3);
  CHECK(at::equal(one.first, three.first));
  CHECK(at::equal(one.second.dx, three.second.dx));
  CheckSameBits(one.second, three.second);
}

}  // namespace lathe::worker
