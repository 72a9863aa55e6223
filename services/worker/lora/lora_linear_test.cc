#include <catch2/catch.hpp>

#include "services/worker/lora/adapter.h"
#include "services/worker/lora/adapter_layout.h"
#include "services/worker/lora/lora_linear.h"

namespace lathe::worker {
namespace {

ModelSpec SmallModel() {
  return {.family = "qwen3",
          .num_layers = 1,
          .hidden_size = 8,
          .intermediate_size = 12,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 4,
          .vocab_size = 20};
}

constexpr LoraSlot kUp = {0, LoraTarget::kUp};

// An adapter whose B is not zero.
std::shared_ptr<const AdapterWeights> TrainedAdapter(int64_t rank, uint64_t seed) {
  Adapter adapter(SmallModel(), {.rank = rank, .seed = seed}, at::kCPU);
  at::manual_seed(seed);
  adapter.parameters.normal_(0, 0.5);
  adapter.MarkChanged();
  return adapter.Publish();
}

at::Tensor Expected(const at::Tensor& x, const AdapterWeights& adapter) {
  const LoraPair& pair = kUp.Of(adapter.tensors);
  return x.mm(pair.a.t()).mm(pair.b.t()) * adapter.scaling;
}

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("AddLora: each segment uses its own adapter, whatever its rank", "[lora]") {
  const auto narrow = TrainedAdapter(1, 1);
  const auto wide = TrainedAdapter(13, 2);
  const at::Tensor x = at::randn({7, 8});
  at::Tensor stacked = at::zeros({7, 24});
  AddLora(x, {{0, 2, narrow.get()}, {2, 3, nullptr}, {3, 7, wide.get()}}, kUp,
          stacked.narrow(1, 12, 12));
  const at::Tensor y = stacked.narrow(1, 12, 12);
  CHECK(MaxDiff(y.narrow(0, 0, 2), Expected(x.narrow(0, 0, 2), *narrow)) < 1e-5);
  CHECK(y[2].abs().max().item<double>() == 0);
  CHECK(MaxDiff(y.narrow(0, 3, 4), Expected(x.narrow(0, 3, 4), *wide)) < 1e-5);
  CHECK(stacked.narrow(1, 0, 12).abs().max().item<double>() == 0);
}

TEST_CASE("AddLora: with B zero the output is the base's bit for bit", "[lora]") {
  Adapter fresh(SmallModel(), {.rank = 5, .seed = 3}, at::kCPU);
  const auto weights = fresh.Publish();
  const at::Tensor base = at::randn({6, 12});
  const at::Tensor y = base.clone();
  AddLora(at::randn({6, 8}), {{0, 6, weights.get()}}, kUp, y);
  CHECK(at::equal(y, base));
}

TEST_CASE("AddLoraBackward: equals autograd and skips segments without gradient", "[lora]") {
  const auto adapter = TrainedAdapter(3, 4);
  const LoraPair& pair = kUp.Of(adapter->tensors);
  const at::Tensor a = pair.a.clone().requires_grad_(true);
  const at::Tensor b = pair.b.clone().requires_grad_(true);
  const at::Tensor x = at::randn({5, 8}).requires_grad_(true);
  const at::Tensor dy = at::randn({5, 12});
  dy.narrow(0, 3, 2).zero_();
  (x.mm(a.t()).mm(b.t()) * adapter->scaling).backward(dy);

  Adapter shape(SmallModel(), adapter->lora, at::kCPU);
  AdapterGradients gradients = shape.MakeGradients();
  std::vector<AdapterGradients*> list = {&gradients};
  at::Tensor dx = at::zeros({5, 8});
  AddLoraBackward(x.detach(), dy,
                  {{0, 1, adapter.get(), 0}, {1, 3, adapter.get(), 0}, {3, 5, adapter.get(), -1}},
                  kUp, list, dx);
  CHECK(MaxDiff(dx, x.grad()) < 1e-5);
  CHECK(MaxDiff(kUp.Of(gradients.tensors).a, a.grad()) < 1e-5);
  CHECK(MaxDiff(kUp.Of(gradients.tensors).b, b.grad()) < 1e-5);
}

}  // namespace lathe::worker
