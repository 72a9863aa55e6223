#include "services/worker/executor/startup/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/worker/ops/reports.h"

namespace lathe::worker {
namespace {

// Code, torch's tables, requests and results.
constexpr int64_t kProcessBytes = int64_t{256} << 20;
constexpr double kGib = 1 << 30;
// Shares of the memory that weights and sampling passes leave. The arena gets the rest.
constexpr double kCacheShare = 0.3;
// The same in a group that only samples.
constexpr double kCacheShareAlone = 0.6;
constexpr double kAdapterShare = 0.3;
constexpr double kSaveShare = 0.03;
// Same values as in SamplingOptions: rows of a prefill pass, samples that run together.
constexpr int64_t kPrefillTokens = 2048;
constexpr int64_t kRunningSamples = 256;
// From this number of rows on, the product with the unembedding runs at full rate.
constexpr int64_t kHeadRows = 256;
constexpr int64_t kMinHeadElements = int64_t{1} << 24;
constexpr int64_t kArenaPerHeadByte = 16;
constexpr int64_t kBytesPerHeadElement = 2 * sizeof(float);
// Smaller micro-batches waste the matrix products, larger ones gain nothing.
constexpr int64_t kMinTokenBudget = 512;
constexpr int64_t kMaxTokenBudget = 4096;

double Gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

int64_t Share(int64_t bytes, double share) {
  return static_cast<int64_t>(static_cast<double>(bytes) * share);
}

// Returns the largest rank of an adapter. The products x A^T take memory for each row.
int64_t MaxLoraRank() { return ModelInfo().max_lora_rank; }

PassShape ShapeOfPass(int64_t num_tokens) {
  return {.num_tokens = num_tokens,
          .num_entries = num_tokens,
          .num_sequences = 1,
          .max_lora_rank = MaxLoraRank(),
          .wants_gradient = true};
}

int64_t HeadElements(const DecoderSpec& model, int64_t arena_bytes) {
  const int64_t wanted = std::max(kHeadRows * model.vocab_size, kMinHeadElements);
  return std::clamp(arena_bytes / (kArenaPerHeadByte * kBytesPerHeadElement), model.vocab_size,
                    wanted);
}

int64_t CacheBytesPerToken(const DecoderSpec& model, int64_t element_bytes) {
  int64_t numbers = 0;
  for (const LayerSpec& layer : model.layers) {
    numbers += 2 * layer.attention.num_kv_heads * layer.attention.head_dim;
  }
  return element_bytes * numbers;
}

// Upper bound of what the cache can use: keys and values of all samples that run together, each as
// long as the context.
int64_t MostCacheBytes(const DecoderSpec& model, int64_t element_bytes) {
  return kRunningSamples * model.max_position_embeddings * CacheBytesPerToken(model, element_bytes);
}

int64_t SamplingBytes(const DecoderSpec& model, int64_t cpu_threads) {
  const PassMemory memory(model, kRunningSamples * model.vocab_size, {.cpu_threads = cpu_threads});
  return memory.Bytes({.num_tokens = kPrefillTokens, .max_lora_rank = MaxLoraRank()},
                      /*num_checkpointed=*/0);
}

// Returns the error of a plan whose weights leave `rest` bytes.
absl::Status TooLittle(const MemoryFacts& facts, const MemoryPlan& plan, double needed_rest,
                       const char* what) {
  const int64_t usable = Share(facts.available_bytes, facts.fraction);
  const int64_t taken = plan.process_bytes + plan.weight_bytes + plan.sampling_bytes;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "memory_fraction %.2f of %.1f GiB is %.1f GiB; the model needs %.1f GiB: %.1f GiB of "
      "weights, the rest to %s %d tokens at a time",
      facts.fraction, Gib(facts.available_bytes), Gib(usable), Gib(taken) + needed_rest / kGib,
      Gib(plan.weight_bytes), what, kMinTokenBudget));
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const DecoderSpec& model, const MemoryFacts& facts) {
  MemoryPlan plan;
  plan.weight_bytes = facts.weight_bytes;
  if (facts.samples) plan.sampling_bytes = SamplingBytes(model, facts.compute.cpu_threads);
  plan.process_bytes = kProcessBytes;
  const int64_t rest = Share(facts.available_bytes, facts.fraction) - plan.process_bytes -
                       plan.weight_bytes - plan.sampling_bytes;
  const double cache_share = !facts.samples ? 0 : facts.trains ? kCacheShare : kCacheShareAlone;
  plan.kv_cache_bytes =
      std::min(Share(rest, cache_share), MostCacheBytes(model, facts.kv_element_bytes));
  plan.adapter_bytes = Share(rest, kAdapterShare);
  if (!facts.trains) {
    const int64_t least = kMinTokenBudget * CacheBytesPerToken(model, facts.kv_element_bytes);
    if (Share(rest, cache_share) < std::min(least, MostCacheBytes(model, facts.kv_element_bytes))) {
      return TooLittle(facts, plan, static_cast<double>(least) / cache_share, "sample");
    }
    plan.arena_bytes = rest - plan.kv_cache_bytes - plan.adapter_bytes;
    plan.sampling_chunk_elements = kHeadRows * model.vocab_size;
    plan.head_chunk_elements = plan.sampling_chunk_elements;
    plan.token_budget = kMinTokenBudget;
    return plan;
  }
  // Other devices than a CPU copy saves to the host.
  const bool is_cpu = facts.compute.cpu_threads > 0;
  (is_cpu ? plan.save_bytes : plan.host_save_bytes) = Share(rest, kSaveShare);
  plan.arena_bytes = rest - plan.kv_cache_bytes - plan.adapter_bytes - plan.save_bytes;
  plan.sampling_chunk_elements = HeadElements(model, plan.arena_bytes);
  plan.head_chunk_elements = plan.sampling_chunk_elements;

  const PassMemory memory(model, plan.head_chunk_elements, facts.compute);
  const int64_t least = memory.Bytes(ShapeOfPass(kMinTokenBudget), model.num_layers());
  if (least > plan.arena_bytes) {
    const double arena_share = 1 - cache_share - kAdapterShare - (is_cpu ? kSaveShare : 0);
    return TooLittle(facts, plan, static_cast<double>(least) / arena_share, "train");
  }
  plan.token_budget = std::clamp(facts.tokens_per_step, kMinTokenBudget, kMaxTokenBudget);
  // Prefers smaller micro-batches to layers computed twice.
  while (plan.token_budget > kMinTokenBudget &&
         memory.FewestCheckpointed(ShapeOfPass(plan.token_budget), plan.arena_bytes) > 0) {
    plan.token_budget /= 2;
  }
  plan.token_budget = std::max(plan.token_budget, kMinTokenBudget);
  plan.num_checkpointed =
      memory.FewestCheckpointed(ShapeOfPass(plan.token_budget), plan.arena_bytes);
  if (facts.gathers_weights) {
    // Each chunk unshards the head for its forward pass and again for its backward pass. So chunks
    // grow up to the micro-batch's size, within half of the room left. Gradients get the other
    // half.
    const int64_t room =
        plan.arena_bytes - memory.Bytes(ShapeOfPass(plan.token_budget), plan.num_checkpointed);
    plan.head_chunk_elements =
        std::max(plan.head_chunk_elements,
                 std::min(plan.head_chunk_elements + room / 2 / kBytesPerHeadElement,
                          plan.token_budget * model.vocab_size));
  }
  return plan;
}

}  // namespace lathe::worker
