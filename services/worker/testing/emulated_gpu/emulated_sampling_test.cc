// Compares sampling on the emulated GPU with sampling by the CPU kernels.
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/sampling/sampling_engine.h"
#include "services/worker/testing/emulated_gpu/emulated_gpu.h"
#include "services/worker/testing/test_family_model.h"

namespace lathe::worker {
namespace {

constexpr double kFp32Margin = 2e-5;  // of logprobs: other order of sums
// Distance of all logprobs together, relative to their size. bf16 keeps 8 bits of a number.
constexpr double kBf16Tolerance = 0.02;

std::vector<int32_t> PromptOf(int64_t length, int64_t first_token) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<int32_t>((first_token + 7 * i * i) % 95));
  }
  return prompt;
}

// Requests with all that draws and scores of prompts can ask for.
std::vector<SampleRequest> FamilyRequests() {
  std::vector<SampleRequest> requests = {
      {.request_id = "greedy", .prompt = PromptOf(33, 1), .params = {.temperature = 0}},
      {.request_id = "group", .prompt = PromptOf(19, 2), .num_samples = 3},
      {.request_id = "filters",
       .prompt = PromptOf(40, 3),
       .num_samples = 2,
       .params = {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .min_p = 0.01}},
      {.request_id = "scores",
       .prompt = PromptOf(50, 4),
       .prompt_logprobs = true,
       .topk_prompt_logprobs = 3,
       .prompt_alt_tokens_k = 2,
       .topk_sample_logprobs = 4},
      // The same tenant's next prompt begins with blocks that the cache holds.
      {.request_id = "reuse", .prompt = PromptOf(50, 4), .prompt_logprobs = true}};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].tenant_id = "tenant";
    requests[i].version_id = i % 2 == 0 ? "" : "v1";
    requests[i].params.max_tokens = 9 + static_cast<int64_t>(i);
    requests[i].params.seed = 100 + i;
    requests[i].params.ignore_eos = true;
  }
  requests.back().version_id = "v1";
  return requests;
}

using Outputs = std::map<std::string, SampleOutput>;

// Chunks of prompts run beside decoding samples, and the cache is too small for all at once.
Outputs SampleFamily(const Model& model) {
  const int64_t bytes_per_token =
      KvCache::BytesPerToken(model.spec(), model.attention_arithmetic());
  SamplingEngine engine(model,
                        {.kv_cache_bytes = 192 * bytes_per_token,
                         .max_running_samples = 4,
                         .max_prefill_tokens = 24,
                         .max_prefill_tokens_beside_decode = 10,
                         .head_chunk_elements = 9 * model.spec().vocab_size},
                        nullptr);
  const auto adapter = RandomAdapterOn(model.device(), model.spec(), 5, 3)->Publish();
  for (SampleRequest& request : FamilyRequests()) {
    const bool is_adapted = !request.version_id.empty();
    REQUIRE(engine.Add(std::move(request), is_adapted ? adapter : nullptr).ok());
  }
  Outputs outputs;
  while (engine.HasWork()) {
    engine.RunPass();
    for (FinishedSample& finished : engine.TakeFinished()) {
      INFO(finished.output.status());
      REQUIRE(finished.output.ok());
      outputs[finished.request_id] = std::move(*finished.output);
    }
  }
  return outputs;
}

void CheckClose(const std::vector<float>& own, const std::vector<float>& expected, double margin) {
  REQUIRE(own.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(std::isnan(own[i]) == std::isnan(expected[i]));
    if (!std::isnan(expected[i])) CHECK(own[i] == Approx(expected[i]).margin(margin));
  }
}

}  // namespace

TEST_CASE("Samples of fp32 models are on a GPU what they are on a CPU",
          "[sampling][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  CAPTURE(family);
  const DecoderSpec spec = TestFamilySpec(family, 16);
  const Outputs expected = SampleFamily(RandomModelOn(at::kCPU, spec, at::kFloat));
  const Outputs own = SampleFamily(RandomModelOn(EmulatedGpu(), spec, at::kFloat));
  REQUIRE(own.size() == expected.size());
  for (const auto& [id, output] : expected) {
    CAPTURE(id);
    const SampleOutput& other = own.at(id);
    for (size_t i = 0; i < output.sequences.size(); ++i) {
      CHECK(other.sequences[i].tokens == output.sequences[i].tokens);
      CheckClose(other.sequences[i].logprobs, output.sequences[i].logprobs, kFp32Margin);
    }
    CheckClose(other.prompt_logprobs, output.prompt_logprobs, kFp32Margin);
    CHECK(other.prompt_cache_hit_tokens == output.prompt_cache_hit_tokens);
    if (id != "scores") continue;
    CHECK(other.topk_prompt_logprobs->token_ids == output.topk_prompt_logprobs->token_ids);
    CheckClose(other.topk_prompt_logprobs->logprobs, output.topk_prompt_logprobs->logprobs,
               kFp32Margin);
    CHECK(other.prompt_alt_tokens->tokens == output.prompt_alt_tokens->tokens);
    CHECK(other.sequences[0].topk_logprobs->token_ids ==
          output.sequences[0].topk_logprobs->token_ids);
    CheckClose(other.sequences[0].topk_logprobs->logprobs,
               output.sequences[0].topk_logprobs->logprobs, kFp32Margin);
  }
}

TEST_CASE("Samples with a cache of pages are close to those in fp32", "[sampling][emulated_gpu]") {
  const std::string family = GENERATE(from_range(TestFamilies()));
  CAPTURE(family);
  const DecoderSpec spec = TestFamilySpec(family, 64);
  const Outputs expected = SampleFamily(RandomModelOn(at::kCPU, spec, at::kBFloat16));
  const Decoder model = RandomModelOn(EmulatedGpu(), spec, at::kBFloat16);
  REQUIRE(model.attention_arithmetic() == MatmulArithmetic::kBf16);
  const Outputs own = SampleFamily(model);
  for (const char* id : {"scores", "reuse"}) {
    const auto scores_of = [&](const Outputs& outputs) {
      const std::vector<float>& logprobs = outputs.at(id).prompt_logprobs;
      return at::tensor(at::ArrayRef<float>(logprobs).slice(1));  // the first has no score
    };
    CHECK(Distance(scores_of(own), scores_of(expected)) < kBf16Tolerance);
  }
  std::vector<float> own_logprobs, expected_logprobs;
  for (const auto& [id, output] : expected) {
    for (size_t i = 0; i < output.sequences.size(); ++i) {
      const SampledSequence& other = own.at(id).sequences[i];
      const SampledSequence& sequence = output.sequences[i];
      REQUIRE(other.tokens.size() == sequence.tokens.size());
      // After another token, what follows differs.
      for (size_t j = 0; j < sequence.tokens.size() && other.tokens[j] == sequence.tokens[j]; ++j) {
        own_logprobs.push_back(other.logprobs[j]);
        expected_logprobs.push_back(sequence.logprobs[j]);
      }
    }
  }
  CHECK(expected_logprobs.size() > 40);
  CHECK(Distance(at::tensor(own_logprobs), at::tensor(expected_logprobs)) < kBf16Tolerance);
}

}  // namespace lathe::worker
