#include "services/worker/training/pass_memory.h"
#include "services/worker/spec/dense_decoder.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

// The shape of Qwen3-0.6B.
DecoderSpec Spec() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 28,
                       .hidden_size = 1024,
                       .intermediate_size = 3072,
                       .num_heads = 16,
                       .num_kv_heads = 8,
                       .head_dim = 128,
                       .vocab_size = 151936});
}

PassShape Shape(int64_t num_tokens) {
  return {.num_tokens = num_tokens,
          .num_entries = num_tokens,
          .gradient_bytes = int64_t{40} << 20,
          .max_lora_rank = 8,
          .wants_gradient = true};
}

constexpr int64_t kChunk = int64_t{1} << 24;
constexpr int64_t kGib = int64_t{1} << 30;

}  // namespace

TEST_CASE("PassMemory: a layer keeps what its backward step reads", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.cpu_threads = 2});
  // x, q/k/v, attention output, log-sum-exp, residual, gate and up.
  CHECK(memory.SavedBytesPerToken(27) == 4 * (1024 + 4096 + 2048 + 16 + 1024 + 6144));
  CHECK(memory.CheckpointBytesPerToken() == 4 * 1024);
}

TEST_CASE("PassMemory: bf16 activations of a GPU halve all but the residual stream", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.is_bf16 = true});
  const int64_t residual_and_log_sums = 4 * (1024 + 1024 + 16);
  CHECK(memory.SavedBytesPerToken(27) == residual_and_log_sums + 2 * (4096 + 2048 + 6144));
  CHECK(memory.CheckpointBytesPerToken() == 4 * 1024);
  const PassMemory fp32(Spec(), kChunk, {});
  CHECK(memory.Bytes(Shape(4096), 0) < fp32.Bytes(Shape(4096), 0) * 3 / 4);
  // Flash attention rounds each sequence up to 128 rows of its sums, which are fp32.
  PassShape many = Shape(4096);
  many.num_sequences = 500;
  CHECK(memory.Bytes(many, 28) - memory.Bytes(Shape(4096), 28) ==
        int64_t{500} * 128 * 4 * 16 * (128 + 1));
  CHECK(fp32.Bytes(many, 28) == fp32.Bytes(Shape(4096), 28));
}

TEST_CASE("PassMemory: a sequence of 4,096 tokens takes 2.5 GiB with checkpointing", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.cpu_threads = 2});
  CHECK(memory.Bytes(Shape(4096), 0) > 6 * kGib);
  CHECK(memory.Bytes(Shape(4096), 28) < kGib * 5 / 2);
  CHECK(memory.Bytes(Shape(512), 0) < kGib * 5 / 4);
}

TEST_CASE("PassMemory: each thread of a CPU gathers a sequence's queries and gradients",
          "[training]") {
  const auto bytes = [](int64_t threads, int64_t num_tokens) {
    return PassMemory(Spec(), kChunk, {.cpu_threads = threads}).Bytes(Shape(num_tokens), 28);
  };
  // Two query heads share a KV head: q, dL/dout and dq of each.
  CHECK(bytes(8, 1000) - bytes(4, 1000) == int64_t{1000} * 4 * 4 * 3 * 2 * 128);
  PassShape forward = Shape(1000);
  forward.wants_gradient = false;
  CHECK(PassMemory(Spec(), kChunk, {.cpu_threads = 8}).Bytes(forward, 0) ==
        PassMemory(Spec(), kChunk, {.cpu_threads = 4}).Bytes(forward, 0));
}

TEST_CASE("PassMemory: no more layers are checkpointed than must be", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.cpu_threads = 2});
  const PassShape shape = Shape(1024);
  const int64_t limit = (memory.Bytes(shape, 0) + memory.Bytes(shape, 28)) / 2;
  const int64_t layers = memory.FewestCheckpointed(shape, limit);
  CHECK(layers > 0);
  CHECK(memory.Bytes(shape, layers) <= limit);
  CHECK(memory.Bytes(shape, layers - 1) > limit);
  CHECK(memory.FewestCheckpointed(shape, memory.Bytes(shape, 0)) == 0);
  CHECK(memory.FewestCheckpointed(shape, /*limit=*/0) == 28);
}

TEST_CASE("PassMemory: low-rank products of the widest step count", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.cpu_threads = 2});
  PassShape wide = Shape(512);
  wide.max_lora_rank = 512;
  // x A^T and dy B for q, k and v.
  CHECK(memory.Bytes(wide, 0) - memory.Bytes(Shape(512), 0) ==
        int64_t{512} * 4 * 2 * 3 * (512 - 8));
}

TEST_CASE("PassMemory: a pass without gradients keeps nothing", "[training]") {
  const PassMemory memory(Spec(), kChunk, {.cpu_threads = 2});
  PassShape shape = Shape(4096);
  shape.wants_gradient = false;
  CHECK(memory.Bytes(shape, 0) == memory.Bytes(shape, 28));
  CHECK(memory.Bytes(shape, 0) < memory.Bytes(Shape(4096), 28));
}

}  // namespace lathe::worker
