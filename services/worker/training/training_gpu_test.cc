// Compares training on a GPU with torch's operations and with a CPU.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/layers/attention.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/testing/test_gpu.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

constexpr double kFp32Tolerance = 1e-5;
// bf16 keeps 8 bits of a number.
constexpr double kBf16Tolerance = 0.02;
constexpr double kEps = 1e-6;

at::Tensor RandomOnGpu(at::IntArrayRef sizes) { return at::randn(sizes).to(TestGpu()); }

double ToleranceOf(at::ScalarType dtype) {
  return dtype == at::kFloat ? kFp32Tolerance : kBf16Tolerance;
}

}  // namespace

TEST_CASE("RMS norm and its gradient on a GPU equal torch's operations", "[training][gpu]") {
  if (!HasGpu()) return;
  const int64_t width = GENERATE(32, 1024, 1023, 5120);
  const at::Tensor wide = RandomOnGpu({37, width + 4});
  const at::Tensor x = wide.narrow(1, 0, width);
  const at::Tensor weight = RandomOnGpu({width});
  const at::Tensor dy = RandomOnGpu({37, width});
  const at::Tensor residual = RandomOnGpu({37, width});
  const at::Tensor y = RmsNormByTorch(x, weight, kEps);
  CHECK(Distance(RmsNorm(x, weight, kEps), y) < kFp32Tolerance);
  CHECK(Distance(RmsNorm(x, weight, kEps, at::kBFloat16), y) < kBf16Tolerance);
  CHECK(Distance(RmsNormOnto(residual, x, weight, kEps), y + residual) < kFp32Tolerance);
  const at::Tensor dx = RmsNormBackwardByTorch(x, weight, kEps, dy);
  CHECK(Distance(RmsNormBackward(x, weight, kEps, dy), dx) < kFp32Tolerance);
  CHECK(Distance(RmsNormBackwardOnto(residual, x, weight, kEps, dy.clone()), dx + residual) <
        kFp32Tolerance);
}

TEST_CASE("The MLP's activation on a GPU equals torch's operations", "[training][gpu]") {
  if (!HasGpu()) return;
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const int64_t width = GENERATE(96, 97, 3000);
  const at::Tensor both = RandomOnGpu({19, 2 * width}).to(dtype);
  const at::Tensor dy = RandomOnGpu({19, width}).to(dtype);
  const at::Tensor gate = both.narrow(1, 0, width);
  const at::Tensor up = both.narrow(1, width, width);
  at::Tensor expected = both.to(at::kFloat);
  const at::Tensor gate32 = expected.narrow(1, 0, width);
  const at::Tensor up32 = expected.narrow(1, width, width);
  CHECK(Distance(GatedActivation(activation, gate, up),
                 GatedActivationByTorch(activation, gate32, up32)) < ToleranceOf(dtype));
  GatedActivationBackward(activation, gate, up, dy);
  GatedActivationBackwardByTorch(activation, gate32, up32, dy.to(at::kFloat));
  CHECK(Distance(both, expected) < ToleranceOf(dtype));
}

TEST_CASE("Norm and rope of heads on a GPU equal torch's operations", "[training][gpu]") {
  if (!HasGpu()) return;
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t head_dim = GENERATE(64, 128, 256);
  const bool has_norm = GENERATE(true, false);
  constexpr int64_t kRows = 21;
  const RopeTable rope({.theta = 1e4}, head_dim, 64, TestGpu());
  QkPreparation preparation{
      .eps = kEps, .rope = &rope, .positions = at::arange(kRows, at::kLong).to(TestGpu())};
  if (has_norm) {
    preparation.q_norm = RandomOnGpu({head_dim});
    preparation.k_norm = RandomOnGpu({head_dim});
  }
  const at::Tensor all = RandomOnGpu({kRows, 6 * head_dim}).to(dtype);
  const auto heads_of = [&](const at::Tensor& x) {
    return QkHeads{x.narrow(1, 0, 4 * head_dim).view({kRows, 4, head_dim}),
                   x.narrow(1, 4 * head_dim, 2 * head_dim).view({kRows, 2, head_dim})};
  };
  const at::Tensor expected = all.to(at::kFloat);
  const QkHeads y = PrepareQk(heads_of(all), preparation);
  const QkHeads expected_y = PrepareQkByTorch(heads_of(expected), preparation);
  CHECK(y.q.scalar_type() == dtype);
  CHECK(Distance(y.q, expected_y.q) < ToleranceOf(dtype));
  CHECK(Distance(y.k, expected_y.k) < ToleranceOf(dtype));

  const QkHeads d = {RandomOnGpu({kRows, 4, head_dim}).to(dtype),
                     RandomOnGpu({kRows, 2, head_dim}).to(dtype)};
  const QkHeads d32 = {d.q.to(at::kFloat), d.k.to(at::kFloat)};
  PrepareQkBackward(heads_of(all), preparation, d);
  PrepareQkBackwardByTorch(heads_of(expected), preparation, d32);
  CHECK(Distance(all, expected) < ToleranceOf(dtype));
}

TEST_CASE("Flash attention on a GPU equals attention in fp32, with equal bits in each run",
          "[training][gpu]") {
  if (!HasGpu()) return;
  const int64_t head_dim = GENERATE(64, 128, 256);
  const int64_t window = GENERATE(0, 50);
  const std::vector<int64_t> cu_seqlens = {0, 1, 17, 17, 300, 812};
  const AttentionSpec spec{.num_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim = head_dim,
                           .scale = ScaleOf(head_dim),
                           .window = window};
  const auto random = [&](int64_t heads) {
    // Column slices, as of a projection.
    return RandomOnGpu({812, heads * head_dim + 64})
        .to(at::kBFloat16)
        .narrow(1, 0, heads * head_dim)
        .view({812, heads, head_dim});
  };
  const at::Tensor q = random(4), k = random(2), v = random(2), dout = random(4);
  const auto run = [&] {
    const AttentionOutput output =
        CausalAttention(spec, q, k, v, cu_seqlens, MatmulArithmetic::kBf16);
    const AttentionGradients d =
        CausalAttentionBackward(spec, q, k, v, cu_seqlens, output, dout, MatmulArithmetic::kBf16);
    return std::vector<at::Tensor>{output.out, d.dq, d.dk, d.dv};
  };
  const auto fp32 = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const AttentionGradients d =
      CausalAttentionBackwardByTorch(spec, fp32(q), fp32(k), fp32(v), cu_seqlens, fp32(dout));
  const std::vector<at::Tensor> expected = {
      CausalAttentionByTorch(spec, fp32(q), fp32(k), fp32(v), cu_seqlens), d.dq, d.dk, d.dv};
  const std::vector<at::Tensor> once = run();
  const std::vector<at::Tensor> again = run();
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, head_dim, window);
    CHECK(once[i].scalar_type() == at::kBFloat16);
    CHECK(Distance(once[i], expected[i]) < kBf16Tolerance);
    CHECK(at::equal(once[i], again[i]));
  }
}

TEST_CASE("LoRA's products of bf16 rows on a GPU equal those of fp32 rows", "[training][gpu]") {
  if (!HasGpu()) return;
  const DecoderSpec spec = SpecWithHeads(64);
  const int64_t hidden = spec.hidden_size;
  const auto first = RandomAdapterOn(TestGpu(), spec, 8, 1);
  const auto second = RandomAdapterOn(TestGpu(), spec, 24, 2);
  const auto first_weights = first->Publish();
  const auto second_weights = second->Publish();
  const std::vector<Segment> segments = {
      {0, 70, first_weights.get(), 0}, {70, 75, nullptr}, {75, 130, second_weights.get(), 1}};
  // The stack of q, k and v.
  const std::vector<int64_t> widths = {256, 128, 128};
  const auto parts_of = [&](const at::Tensor& y) {
    std::vector<LoraPart> parts;
    int64_t begin = 0;
    for (int64_t i = 0; i < 3; ++i) {
      parts.push_back({i, y.narrow(1, begin, widths[i])});
      begin += widths[i];
    }
    return parts;
  };
  const at::Tensor x = RandomOnGpu({130, hidden}).to(at::kBFloat16);
  const at::Tensor y = RandomOnGpu({130, 512}).to(at::kBFloat16);
  const at::Tensor dx = RandomOnGpu({130, hidden});

  // Returns y, dx, and the gradients of both adapters.
  const auto run = [&](at::ScalarType dtype) {
    std::vector<AdapterGradients> gradients = {first->MakeGradients(), second->MakeGradients()};
    std::vector<AdapterGradients*> pointers = {&gradients[0], &gradients[1]};
    const at::Tensor own_y = y.to(dtype, /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor own_dx = dx.clone();
    AddLora(x.to(dtype), segments, parts_of(own_y));
    AddLoraBackward(x.to(dtype), segments, parts_of(y.to(dtype)), pointers, own_dx);
    return std::vector<at::Tensor>{own_y, own_dx, gradients[0].tensors.flat,
                                   gradients[1].tensors.flat};
  };
  const std::vector<at::Tensor> bf16 = run(at::kBFloat16);
  const std::vector<at::Tensor> fp32 = run(at::kFloat);
  for (size_t i = 0; i < fp32.size(); ++i) {
    CAPTURE(i);
    CHECK(Distance(bf16[i], fp32[i]) < kBf16Tolerance);
  }
  CHECK(bf16[1].scalar_type() == at::kFloat);
  CHECK(bf16[2].scalar_type() == at::kFloat);
}

namespace {

// Results of one batch and one step for two adapters.
struct Learned {
  std::vector<std::vector<float>> logprobs;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> parameters;
};

TrainDatum DatumOf(int64_t length, int64_t first_token) {
  TrainDatum datum;
  for (int64_t i = 0; i < length; ++i) {
    datum.tokens.push_back(static_cast<int32_t>((first_token + 7 * i * i) % 96));
    datum.targets.push_back((first_token + 5 * i) % 96);
    datum.weights.push_back(i == 0 ? 0.0f : 0.5f);
  }
  return datum;
}

Learned Train(at::Device device, const DecoderSpec& spec, const TrainerOptions& options) {
  const Decoder model = Bf16ModelOn(device, spec);
  AdapterPool adapters;
  adapters.Put("m1", RandomAdapterOn(device, spec, 8, 1));
  adapters.Put("m2", RandomAdapterOn(device, spec, 24, 2));
  Trainer trainer(model, adapters, options);
  const auto request = [](const std::string& model_id, std::vector<TrainDatum> data) {
    return TrainRequest{.request_id = model_id,
                        .model_id = model_id,
                        .seq_id = 1,
                        .loss = DefaultLoss("cross_entropy"),
                        .data = std::move(data)};
  };
  trainer.Begin({{request("m1", {DatumOf(70, 3), DatumOf(1, 8), DatumOf(300, 5)}),
                  request("m2", {DatumOf(33, 1)})}});
  while (trainer.RunUnit()) {
  }
  Learned learned;
  for (FinishedRequest& finished : trainer.TakeFinished()) {
    INFO(finished.output.status());
    REQUIRE(finished.output.ok());
    for (auto& logprobs : finished.output->logprobs) learned.logprobs.push_back(logprobs);
  }
  for (const char* id : {"m1", "m2"}) {
    const auto adapter = adapters.Find(id);
    learned.gradients.push_back(adapter->gradient.clone());
    REQUIRE(ApplyAdamW(*adapter, {}).ok());
    learned.parameters.push_back(adapter->parameters().clone());
  }
  return learned;
}

}  // namespace

TEST_CASE("A pass and a step on a GPU are close to those in fp32, with equal bits in each run",
          "[training][gpu]") {
  if (!HasGpu()) return;
  const DecoderSpec spec = SpecWithHeads(GENERATE(64, 128));
  TrainerOptions options{.head_chunk_elements = 50 * spec.vocab_size};
  const Learned expected = Train(at::kCPU, spec, options);
  const Learned once = Train(TestGpu(), spec, options);
  const Learned again = Train(TestGpu(), spec, options);
  // So little memory that the longest datum, alone in its pass, has both layers recomputed. A job
  // of several data has two gradient buffers.
  const PassMemory memory(spec, options.head_chunk_elements, {.is_bf16 = true});
  const PassShape longest{
      .num_tokens = 300,
      .num_entries = 300,
      .num_sequences = 1,
      .gradient_bytes = 2 * 4 * RandomAdapterOn(at::kCPU, spec, 8, 1)->num_parameters(),
      .max_lora_rank = 8,
      .wants_gradient = true};
  options.arena_bytes = memory.Bytes(longest, /*num_checkpointed=*/2);
  const Learned recomputed = Train(TestGpu(), spec, options);
  REQUIRE(once.logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    for (size_t j = 0; j < expected.logprobs[i].size(); ++j) {
      CHECK(once.logprobs[i][j] == Approx(expected.logprobs[i][j]).margin(0.1));
    }
    CHECK(once.logprobs[i] == again.logprobs[i]);
  }
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(Distance(once.gradients[i], expected.gradients[i]) < 2 * kBf16Tolerance);
    CHECK(at::equal(once.gradients[i], again.gradients[i]));
    CHECK(at::equal(once.parameters[i], again.parameters[i]));
    CHECK(Distance(recomputed.gradients[i], once.gradients[i]) < kBf16Tolerance);
  }
}

}  // namespace lathe::worker
