// Compares whole training passes on the emulated GPU with those of the CPU kernels.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/losses/registry.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_family_model.h"
#include "services/worker/training/adamw.h"
#include "services/worker/training/trainer.h"

namespace lathe::worker {
namespace {

constexpr double kFp32Tolerance = 2e-5;  // other order of sums, over two layers and two steps
// bf16 keeps 8 bits of a number. The loss of the second adapter has a factor exp(logprob).
constexpr double kBf16Tolerance = 0.06;

TrainDatum FamilyDatum(int64_t length, int64_t first_token, bool is_policy) {
  TrainDatum datum;
  for (int64_t i = 0; i < length; ++i) {
    datum.tokens.push_back(static_cast<int32_t>((first_token + 7 * i * i) % 95));
    datum.targets.push_back((first_token + 5 * i) % 95);
    datum.weights.push_back(i == 0 ? 0.0f : 0.5f);
    if (!is_policy) continue;
    datum.logprobs.push_back(-4.5f);
    datum.advantages.push_back(i == 0 ? 0.0f : 0.7f);
    datum.mask.push_back(i == 0 ? 0.0f : 1.0f);
  }
  return datum;
}

struct LearnedFamily {
  std::vector<std::vector<float>> logprobs;
  std::vector<at::Tensor> gradients;   // of each step and adapter
  std::vector<at::Tensor> parameters;  // after each step
};

// Trains two adapters and leaves rows of the base model between them. Takes two steps.
LearnedFamily TrainFamily(const Model& model, const TrainerOptions& options) {
  AdapterPool adapters;
  adapters.Put("m1", RandomAdapterOn(model.device(), model.spec(), 4, 1));
  adapters.Put("m2", RandomAdapterOn(model.device(), model.spec(), 9, 2));
  Trainer trainer(model, adapters, options);
  LearnedFamily learned;
  for (int64_t step = 1; step <= 2; ++step) {
    const auto request = [&](const std::string& model_id, const char* loss,
                             std::vector<TrainDatum> data) {
      return TrainRequest{.request_id = model_id,
                          .model_id = model_id,
                          .seq_id = step,
                          .loss = DefaultLoss(loss),
                          .data = std::move(data)};
    };
    trainer.Begin({{request("m1", "cross_entropy",
                            {FamilyDatum(21, step, false), FamilyDatum(1, 8, false),
                             FamilyDatum(13, 5, false)}),
                    request("m2", "importance_sampling", {FamilyDatum(17, 3 * step, true)})}});
    while (trainer.RunUnit()) {
    }
    std::map<std::string, TrainOutput> outputs;
    for (FinishedRequest& finished : trainer.TakeFinished()) {
      INFO(finished.output.status());
      REQUIRE(finished.output.ok());
      outputs[finished.request_id] = std::move(*finished.output);
    }
    for (auto& [id, output] : outputs) {
      for (auto& logprobs : output.logprobs) learned.logprobs.push_back(logprobs);
      const auto adapter = adapters.Find(id);
      learned.gradients.push_back(adapter->gradient.to(at::kCPU, at::kFloat, false, true));
      REQUIRE(ApplyAdamW(*adapter, {.learning_rate = 1e-3, .grad_clip_norm = 1}).ok());
      learned.parameters.push_back(adapter->parameters().to(at::kCPU, at::kFloat, false, true));
    }
  }
  return learned;
}

void CheckClose(const LearnedFamily& own, const LearnedFamily& expected, double tolerance) {
  REQUIRE(own.logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    CAPTURE(i);
    CHECK(Distance(at::tensor(own.logprobs[i]), at::tensor(expected.logprobs[i])) < tolerance);
  }
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(Distance(own.gradients[i], expected.gradients[i]) < tolerance);
    CHECK(Distance(own.parameters[i], expected.parameters[i]) < tolerance);
  }
}

}  // namespace

TEST_CASE("Passes and steps of fp32 models are on a GPU what they are on a CPU",
          "[training][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  const int64_t head_dim = GENERATE(16, 64);  // without and with kernels for heads
  CAPTURE(family, head_dim);
  const DecoderSpec spec = TestFamilySpec(family, head_dim);
  TrainerOptions options{.head_chunk_elements = 12 * spec.vocab_size};
  const LearnedFamily expected = TrainFamily(RandomModelOn(at::kCPU, spec, at::kFloat), options);
  const Decoder model = RandomModelOn(EmulatedGpu(), spec, at::kFloat);
  CheckClose(TrainFamily(model, options), expected, kFp32Tolerance);
}

TEST_CASE("Passes and steps with bf16 activations are close to those in fp32",
          "[training][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  CAPTURE(family);
  const DecoderSpec spec = TestFamilySpec(family, 64);
  const TrainerOptions options{.head_chunk_elements = 12 * spec.vocab_size};
  const LearnedFamily expected = TrainFamily(RandomModelOn(at::kCPU, spec, at::kBFloat16), options);
  const Decoder model = RandomModelOn(EmulatedGpu(), spec, at::kBFloat16);
  REQUIRE(model.attention_arithmetic() == MatmulArithmetic::kBf16);
  CheckClose(TrainFamily(model, options), expected, kBf16Tolerance);
}

}  // namespace lathe::worker
