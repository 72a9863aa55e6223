#include <catch2/catch.hpp>

#include <cmath>

#include "services/worker/lora/adapter.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/spec/dense_decoder.h"

namespace lathe::worker {
namespace {

DecoderSpec SmallSpec() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 2,
                       .hidden_size = 8,
                       .intermediate_size = 12,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 6,
                       .vocab_size = 20});
}

// Rows of the table of linears. Layer 0 begins with its queries.
constexpr int64_t kO = 3;
constexpr int64_t kGate = 4;
constexpr int64_t kUp = 5;
constexpr int64_t kDown = 6;
constexpr int64_t kSecondLayer = 7;

}  // namespace

TEST_CASE("AdapterLayout: matrices tile the flat buffer and have the linears' shapes", "[lora]") {
  const LoraSpec lora{.rank = 3};
  const std::vector<AdapterMatrix> layout = AdapterLayout(WholeModel(SmallSpec()), lora);
  REQUIRE(layout.size() == 2 * (2 * 7 + 1));
  int64_t end = 0;
  for (const AdapterMatrix& matrix : layout) {
    CHECK(matrix.offset == end);
    end += matrix.num_elements();
  }
  CHECK(NumAdapterParameters(WholeModel(SmallSpec()), lora) == end);
  CHECK(layout[0].name() == "model.layers.0.self_attn.q_proj.lora_A");
  const AdapterTensors view = ViewAdapter(at::zeros({end}), WholeModel(SmallSpec()), lora);
  CHECK(view.linears[kSecondLayer].b().sizes() == at::IntArrayRef({24, 3}));
  CHECK(view.linears[kSecondLayer + kO].a.sizes() == at::IntArrayRef({3, 24}));
  CHECK(view.linears[kSecondLayer + kDown].a.sizes() == at::IntArrayRef({3, 12}));
  CHECK(view.linears.back().b().sizes() == at::IntArrayRef({20, 3}));
}

TEST_CASE("AdapterLayout: parameter counts per rank are those published for Qwen3-8B", "[lora]") {
  const DecoderSpec model = DenseDecoder({.family = "qwen3",
                                          .num_layers = 36,
                                          .hidden_size = 4096,
                                          .intermediate_size = 12288,
                                          .num_heads = 32,
                                          .num_kv_heads = 8,
                                          .head_dim = 128,
                                          .vocab_size = 151936});
  const auto count = [&](bool attn, bool mlp, bool unembed) {
    return NumAdapterParameters(WholeModel(model),
                                {.rank = 1, .target_modules = LoraModulesOf(attn, mlp, unembed)});
  };
  CHECK(count(true, false, false) == 958464);
  CHECK(count(false, true, false) == 1769472);
  CHECK(count(false, false, true) == 156032);
}

TEST_CASE("AdapterLayout: targets that are not trained have no matrices", "[lora]") {
  const LoraSpec lora{.rank = 2, .target_modules = LoraModulesOf(false, true, false)};
  const int64_t size = NumAdapterParameters(WholeModel(SmallSpec()), lora);
  const AdapterTensors view = ViewAdapter(at::zeros({size}), WholeModel(SmallSpec()), lora);
  CHECK_FALSE(view.linears[0].defined());
  CHECK(view.linears[kUp].defined());
  CHECK_FALSE(view.linears.back().defined());
}

TEST_CASE("Adapter: B starts at zero and A spreads over its bound", "[lora]") {
  Adapter adapter(WholeModel(SmallSpec()), {.rank = 64, .seed = 5}, at::kCPU);
  const AdapterTensors view =
      ViewAdapter(adapter.parameters(), WholeModel(SmallSpec()), adapter.lora());
  const LoraPair& down = view.linears[kSecondLayer + kDown];
  const double bound = 1 / std::sqrt(12.0);
  CHECK(down.b_t.abs().max().item<double>() == 0);
  CHECK(down.a.abs().max().item<double>() <= bound);
  CHECK(down.a.abs().max().item<double>() > 0.95 * bound);
  CHECK(std::abs(down.a.mean().item<double>()) < 0.1 * bound);
  CHECK(down.a.std().item<double>() == Approx(bound / std::sqrt(3.0)).epsilon(0.1));
}

TEST_CASE("Adapter: initial values depend on the seed and the matrix only", "[lora]") {
  Adapter all(WholeModel(SmallSpec()), {.rank = 4, .seed = 9}, at::kCPU);
  Adapter mlp_only(WholeModel(SmallSpec()),
                   {.rank = 4, .seed = 9, .target_modules = LoraModulesOf(false, true, true)},
                   at::kCPU);
  Adapter other_seed(WholeModel(SmallSpec()), {.rank = 4, .seed = 10}, at::kCPU);
  const auto gate = [](Adapter& adapter, int64_t layer) {
    return ViewAdapter(adapter.parameters(), WholeModel(SmallSpec()), adapter.lora())
        .linears[layer * kSecondLayer + kGate]
        .a;
  };
  CHECK(at::equal(gate(all, 1), gate(mlp_only, 1)));
  CHECK_FALSE(at::equal(gate(all, 1), gate(all, 0)));
  CHECK_FALSE(at::equal(gate(all, 1), gate(other_seed, 1)));
}

TEST_CASE("AdapterLayout: B lies transposed in the flat buffer", "[lora]") {
  const LoraSpec lora{.rank = 3};
  const int64_t size = NumAdapterParameters(WholeModel(SmallSpec()), lora);
  const at::Tensor flat = at::arange(size, at::kFloat);
  const AdapterTensors view = ViewAdapter(flat, WholeModel(SmallSpec()), lora);
  const AdapterMatrix last = AdapterLayout(WholeModel(SmallSpec()), lora).back();
  CHECK(last.Of(flat)[1][0].item<float>() == static_cast<float>(last.offset + 1));
  CHECK(last.Of(flat)[0][1].item<float>() == static_cast<float>(last.offset + 20));
  CHECK(at::equal(view.linears.back().b(), last.Of(flat)));
  CHECK(view.linears.back().b_t.is_contiguous());
}

TEST_CASE("Adapter: a published version never changes, the next one has the new weights",
          "[lora]") {
  Adapter adapter(WholeModel(SmallSpec()), {.rank = 2}, at::kCPU);
  const auto first = adapter.Publish();
  CHECK(adapter.Publish() == first);
  const at::Tensor before = first->tensors.flat.clone();
  adapter.MutableParameters().add_(1);
  CHECK(at::equal(first->tensors.flat, before));
  CHECK(at::equal(adapter.parameters(), before + 1));
  CHECK(adapter.Publish() != first);
}

TEST_CASE("Adapter: the next weights lie in memory without readers", "[lora]") {
  Adapter adapter(WholeModel(SmallSpec()), {.rank = 3, .seed = 1}, at::kCPU);
  const auto step = [&] {
    const std::shared_ptr<AdapterWeights> next = adapter.PrepareNext();
    next->tensors.flat.copy_(adapter.parameters() + 1);
    adapter.Replace(next);
  };
  const void* const first = adapter.parameters().const_data_ptr();
  step();
  CHECK(adapter.parameters().const_data_ptr() == first);

  auto held = adapter.Publish();
  const at::Tensor before = held->tensors.flat.clone();
  step();
  const void* const second = adapter.parameters().const_data_ptr();
  CHECK(second != first);
  CHECK(at::equal(held->tensors.flat, before));

  // The first weights' memory is reused when no owner is left.
  held = adapter.Publish();
  step();
  CHECK(adapter.parameters().const_data_ptr() == first);
  CHECK(at::equal(held->tensors.flat, before + 1));
  const auto third = adapter.Publish();
  step();
  CHECK(adapter.parameters().const_data_ptr() != first);
  CHECK(adapter.parameters().const_data_ptr() != second);
  CHECK(at::equal(adapter.parameters(), before + 3));
}

}  // namespace lathe::worker
