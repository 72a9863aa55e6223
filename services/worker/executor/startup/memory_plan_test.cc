#include "services/worker/executor/startup/memory_plan.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "services/worker/spec/dense_decoder.h"
#include "services/worker/training/pass_memory.h"

namespace lathe::worker {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// The shape of Qwen3-0.6B.
DecoderSpec Spec() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 28,
                       .hidden_size = 1024,
                       .intermediate_size = 3072,
                       .num_heads = 16,
                       .num_kv_heads = 8,
                       .head_dim = 128,
                       .vocab_size = 151936,
                       .max_position_embeddings = 40960});
}

MemoryFacts Facts(int64_t available_bytes) {
  return {
      .available_bytes = available_bytes, .weight_bytes = kGib * 6 / 5, .tokens_per_step = 1024};
}

int64_t Sum(const MemoryPlan& plan) {
  return plan.weight_bytes + plan.adapter_bytes + plan.save_bytes + plan.kv_cache_bytes +
         plan.sampling_bytes + plan.arena_bytes;
}

}  // namespace

TEST_CASE("PlanMemory: the shares stay within the fraction", "[memory]") {
  const int64_t available = GENERATE(5 * kGib, 8 * kGib, 20 * kGib, 100 * kGib);
  MemoryFacts facts = Facts(available);
  facts.fraction = GENERATE(0.8, 0.95);
  const auto plan = PlanMemory(Spec(), facts);
  REQUIRE(plan.ok());
  CHECK(Sum(*plan) <= static_cast<int64_t>(facts.fraction * static_cast<double>(available)));
  CHECK(plan->kv_cache_bytes > kGib / 4);
  CHECK(plan->token_budget >= 512);
  CHECK(plan->token_budget <= 1024);
}

TEST_CASE("PlanMemory: saves have a tenth of what adapters have, or as much host memory",
          "[memory]") {
  const MemoryPlan cpu = PlanMemory(Spec(), Facts(20 * kGib)).value();
  CHECK(cpu.save_bytes > kGib / 4);
  CHECK(cpu.host_save_bytes == 0);
  CHECK(std::abs(10 * cpu.save_bytes - cpu.adapter_bytes) < 10);
  MemoryFacts facts = Facts(20 * kGib);
  facts.compute.cpu_threads = 0;
  const MemoryPlan gpu = PlanMemory(Spec(), facts).value();
  CHECK(gpu.save_bytes == 0);
  CHECK(gpu.host_save_bytes > kGib / 4);
  CHECK(std::abs(10 * gpu.host_save_bytes - gpu.adapter_bytes) < 10);
  CHECK(Sum(gpu) <= int64_t{18} * kGib);
}

TEST_CASE("PlanMemory: a group has memory for what its role does", "[memory]") {
  const auto plan = [](int64_t bytes, bool trains, bool samples) {
    MemoryFacts facts = Facts(bytes);
    facts.trains = trains;
    facts.samples = samples;
    return PlanMemory(Spec(), facts);
  };
  const MemoryPlan both = plan(20 * kGib, true, true).value();
  const MemoryPlan trains = plan(20 * kGib, true, false).value();
  CHECK(trains.kv_cache_bytes == 0);
  CHECK(trains.sampling_bytes == 0);
  CHECK(trains.arena_bytes > both.arena_bytes * 3 / 2);
  const MemoryPlan samples = plan(20 * kGib, false, true).value();
  CHECK(samples.kv_cache_bytes > both.kv_cache_bytes * 3 / 2);
  CHECK(samples.arena_bytes < both.arena_bytes / 3);
  CHECK(samples.save_bytes == 0);
  CHECK(samples.sampling_chunk_elements == both.sampling_chunk_elements);
  for (const MemoryPlan& one : {trains, samples}) CHECK(Sum(one) <= int64_t{18} * kGib);
  const auto least = [&plan](bool is_trained, bool is_sampled) {
    int64_t bytes = kGib;
    while (!plan(bytes, is_trained, is_sampled).ok()) bytes += kGib / 16;
    return bytes;
  };
  CHECK(least(false, true) < least(true, true));
  CHECK(least(true, false) < least(true, true));
  const absl::Status little = plan(kGib, false, true).status();
  CHECK(absl::IsResourceExhausted(little));
  CHECK(std::string(little.message()).find("to sample 512 tokens at a time") != std::string::npos);
}

TEST_CASE("PlanMemory: the cache is not larger than all running samples could fill", "[memory]") {
  DecoderSpec spec = Spec();
  spec.max_position_embeddings = 10;
  const auto plan = PlanMemory(spec, Facts(20 * kGib));
  CHECK(plan->kv_cache_bytes == int64_t{256} * 10 * 2 * 4 * 28 * 8 * 128);
  CHECK(plan->arena_bytes > PlanMemory(Spec(), Facts(20 * kGib))->arena_bytes);
  MemoryFacts bf16 = Facts(20 * kGib);
  bf16.kv_element_bytes = 2;
  CHECK(PlanMemory(spec, bf16)->kv_cache_bytes == plan->kv_cache_bytes / 2);
}

TEST_CASE("PlanMemory: sampling has room for low-rank products of the largest adapters",
          "[memory]") {
  const PassMemory without(Spec(), 256 * Spec().vocab_size, Facts(20 * kGib).compute);
  // Three linears of one input at rank 512, for 2,048 rows of a prefill pass, twice.
  CHECK(PlanMemory(Spec(), Facts(20 * kGib))->sampling_bytes ==
        without.Bytes({.num_tokens = 2048}, 0) + int64_t{2048} * 2 * 3 * 512 * 4);
}

TEST_CASE("PlanMemory: layers are computed twice only where memory is short", "[memory]") {
  CHECK(PlanMemory(Spec(), Facts(20 * kGib))->num_checkpointed == 0);
  CHECK(PlanMemory(Spec(), Facts(20 * kGib))->token_budget == 1024);
  const auto small = PlanMemory(Spec(), Facts(kGib * 9 / 2));
  REQUIRE(small.ok());
  CHECK(small->token_budget == 512);
  CHECK(small->num_checkpointed > 0);
}

TEST_CASE("PlanMemory: a slow machine gets small micro-batches, a fast one not too large ones",
          "[memory]") {
  MemoryFacts facts = Facts(100 * kGib);
  facts.tokens_per_step = 7;
  CHECK(PlanMemory(Spec(), facts)->token_budget == 512);
  facts.tokens_per_step = 1 << 20;
  CHECK(PlanMemory(Spec(), facts)->token_budget == 4096);
}

TEST_CASE("PlanMemory: a chunk of logits is a small part of the arena", "[memory]") {
  CHECK(PlanMemory(Spec(), Facts(20 * kGib))->head_chunk_elements == 256 * 151936);
  const auto small = PlanMemory(Spec(), Facts(5 * kGib));
  REQUIRE(small.ok());
  CHECK(8 * small->head_chunk_elements <= small->arena_bytes / 16);
}

TEST_CASE(
    "PlanMemory: where the head is gathered for each chunk, chunks are as large as there is room",
    "[memory]") {
  const auto plan = [](int64_t available_bytes, bool gathers_weights) {
    MemoryFacts facts = Facts(available_bytes);
    facts.gathers_weights = gathers_weights;
    return PlanMemory(Spec(), facts).value();
  };
  const auto peak = [](const MemoryPlan& p) {
    return PassMemory(Spec(), p.head_chunk_elements, {.cpu_threads = 1})
        .Bytes({.num_tokens = p.token_budget,
                .num_entries = p.token_budget,
                .max_lora_rank = 512,
                .wants_gradient = true},
               p.num_checkpointed);
  };
  for (const int64_t available_bytes : {kGib * 9 / 2, 6 * kGib, 8 * kGib, 20 * kGib, 100 * kGib}) {
    CAPTURE(available_bytes);
    const MemoryPlan whole = plan(available_bytes, false);
    const MemoryPlan gathered = plan(available_bytes, true);
    CHECK(gathered.head_chunk_elements >= whole.head_chunk_elements);
    CHECK(gathered.head_chunk_elements <= 1024 * Spec().vocab_size);
    // Micro-batches and the other shares are the same.
    CHECK(gathered.token_budget == whole.token_budget);
    CHECK(gathered.num_checkpointed == whole.num_checkpointed);
    CHECK(gathered.sampling_chunk_elements == whole.head_chunk_elements);
    CHECK(gathered.arena_bytes == whole.arena_bytes);
    CHECK(peak(gathered) - peak(whole) <= (gathered.arena_bytes - peak(whole)) / 2);
  }
  CHECK(plan(100 * kGib, true).head_chunk_elements == 1024 * Spec().vocab_size);
  CHECK(plan(8 * kGib, true).head_chunk_elements > plan(8 * kGib, false).head_chunk_elements);
}

TEST_CASE("PlanMemory: weights that leave too little are refused with the numbers", "[memory]") {
  const auto plan = PlanMemory(Spec(), Facts(2 * kGib));
  REQUIRE(plan.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(plan.status().message()),
             Catch::Contains("memory_fraction 0.90 of 2.0 GiB is 1.8 GiB; the model needs") &&
                 Catch::Contains("1.2 GiB of weights"));
}

}  // namespace lathe::worker
