#include <catch2/catch.hpp>

#include <cmath>

#include "services/worker/lora/adapter.h"
#include "services/worker/lora/adapter_layout.h"

namespace lathe::worker {
namespace {

ModelSpec SmallModel() {
  return {.family = "qwen3",
          .num_layers = 2,
          .hidden_size = 8,
          .intermediate_size = 12,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 6,
          .vocab_size = 20};
}

}  // namespace

TEST_CASE("AdapterLayout: matrices tile the flat buffer and have the linears' shapes", "[lora]") {
  const LoraSpec lora{.rank = 3};
  const std::vector<AdapterMatrix> layout = AdapterLayout(SmallModel(), lora);
  REQUIRE(layout.size() == 2 * (2 * 7 + 1));
  int64_t end = 0;
  for (const AdapterMatrix& matrix : layout) {
    CHECK(matrix.offset == end);
    end += matrix.num_elements();
  }
  CHECK(NumAdapterParameters(SmallModel(), lora) == end);
  CHECK(layout[0].name() == "model.layers.0.self_attn.q_proj.lora_A");
  const AdapterTensors view = ViewAdapter(at::zeros({end}), SmallModel(), lora);
  const LayerLora& layer = view.layers[1];
  CHECK(layer[static_cast<size_t>(LoraTarget::kQ)].b.sizes() == at::IntArrayRef({24, 3}));
  CHECK(layer[static_cast<size_t>(LoraTarget::kO)].a.sizes() == at::IntArrayRef({3, 24}));
  CHECK(layer[static_cast<size_t>(LoraTarget::kDown)].a.sizes() == at::IntArrayRef({3, 12}));
  CHECK(view.unembed.b.sizes() == at::IntArrayRef({20, 3}));
}

TEST_CASE("AdapterLayout: parameter counts per rank are those published for Qwen3-8B", "[lora]") {
  const ModelSpec model{.family = "qwen3",
                        .num_layers = 36,
                        .hidden_size = 4096,
                        .intermediate_size = 12288,
                        .num_heads = 32,
                        .num_kv_heads = 8,
                        .head_dim = 128,
                        .vocab_size = 151936};
  const auto count = [&](bool attn, bool mlp, bool unembed) {
    return NumAdapterParameters(model,
                                {.rank = 1, .target_modules = LoraModulesOf(attn, mlp, unembed)});
  };
  CHECK(count(true, false, false) == 958464);
  CHECK(count(false, true, false) == 1769472);
  CHECK(count(false, false, true) == 156032);
}

TEST_CASE("AdapterLayout: targets that are not trained have no matrices", "[lora]") {
  const LoraSpec lora{.rank = 2, .target_modules = LoraModulesOf(false, true, false)};
  const int64_t size = NumAdapterParameters(SmallModel(), lora);
  const AdapterTensors view = ViewAdapter(at::zeros({size}), SmallModel(), lora);
  CHECK_FALSE(view.layers[0][static_cast<size_t>(LoraTarget::kQ)].defined());
  CHECK(view.layers[0][static_cast<size_t>(LoraTarget::kUp)].defined());
  CHECK_FALSE(view.unembed.defined());
}

TEST_CASE("Adapter: B starts at zero and A spreads over its bound", "[lora]") {
  Adapter adapter(SmallModel(), {.rank = 64, .seed = 5}, at::kCPU);
  const AdapterTensors view = ViewAdapter(adapter.parameters, SmallModel(), adapter.lora());
  const LoraPair& down = view.layers[1][static_cast<size_t>(LoraTarget::kDown)];
  const double bound = 1 / std::sqrt(12.0);
  CHECK(down.b.abs().max().item<double>() == 0);
  CHECK(down.a.abs().max().item<double>() <= bound);
  CHECK(down.a.abs().max().item<double>() > 0.95 * bound);
  CHECK(std::abs(down.a.mean().item<double>()) < 0.1 * bound);
  CHECK(down.a.std().item<double>() == Approx(bound / std::sqrt(3.0)).epsilon(0.1));
}

TEST_CASE("Adapter: initial values depend on the seed and the matrix only", "[lora]") {
  Adapter all(SmallModel(), {.rank = 4, .seed = 9}, at::kCPU);
  Adapter mlp_only(SmallModel(),
                   {.rank = 4, .seed = 9, .target_modules = LoraModulesOf(false, true, true)},
                   at::kCPU);
  Adapter other_seed(SmallModel(), {.rank = 4, .seed = 10}, at::kCPU);
  const auto gate = [](Adapter& adapter, int64_t layer) {
    return ViewAdapter(adapter.parameters, SmallModel(), adapter.lora())
        .layers[layer][static_cast<size_t>(LoraTarget::kGate)]
        .a;
  };
  CHECK(at::equal(gate(all, 1), gate(mlp_only, 1)));
  CHECK_FALSE(at::equal(gate(all, 1), gate(all, 0)));
  CHECK_FALSE(at::equal(gate(all, 1), gate(other_seed, 1)));
}

TEST_CASE("Adapter: a published version never changes, the next one has the new weights",
          "[lora]") {
  Adapter adapter(SmallModel(), {.rank = 2}, at::kCPU);
  const auto first = adapter.Publish();
  CHECK(adapter.Publish() == first);
  const at::Tensor before = first->tensors.flat.clone();
  adapter.parameters.add_(1);
  adapter.MarkChanged();
  CHECK(at::equal(first->tensors.flat, before));
  CHECK(at::equal(adapter.Publish()->tensors.flat, adapter.parameters));
}

TEST_CASE("Adapter: outdated weights are overwritten only where nobody holds them", "[lora]") {
  Adapter adapter(SmallModel(), {.rank = 3, .seed = 1}, at::kCPU);
  auto weights = adapter.Publish();
  CHECK(adapter.Publish() == weights);
  const at::Tensor before = weights->tensors.flat.clone();
  adapter.parameters.add_(1);
  adapter.MarkChanged();
  auto next = adapter.Publish();
  CHECK(next != weights);
  CHECK(at::equal(weights->tensors.flat, before));
  const void* const memory = next->tensors.flat.const_data_ptr();
  next.reset();
  adapter.parameters.add_(1);
  adapter.MarkChanged();
  next = adapter.Publish();
  CHECK(next->tensors.flat.const_data_ptr() == memory);
  CHECK(at::equal(next->tensors.flat, adapter.parameters));
  const LoraPair& pair = next->tensors.unembed;
  CHECK(at::equal(pair.b_t, pair.b.t()));
}

}  // namespace lathe::worker
