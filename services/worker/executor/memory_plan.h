// Who gets which share of the device's memory. Free of torch.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// What was measured.
struct MemoryFacts {
  int64_t available_bytes = 0;   // for the whole process, before the weights were read
  double fraction = 0.9;         // of them that we may plan with
  int64_t weight_bytes = 0;      // of the base model, as they lie in memory
  int64_t cpu_threads = 1;       // that compute; 0 on another device
  int64_t kv_element_bytes = 4;  // of a number in the KV cache
  int64_t tokens_per_step = 0;   // that a layer step can take without holding up samplers
  bool gathers_weights = false;  // of which this rank has a share, whenever it uses them
};

// Bytes of all shares add up to at most available_bytes · fraction. What adapters and the cache do
// not use yet is not taken from the machine (on a CPU), but nobody else plans with it.
struct MemoryPlan {
  int64_t weight_bytes = 0;
  int64_t adapter_bytes = 0;  // adapters with their moments and gradients, and sampler versions
  int64_t kv_cache_bytes = 0;
  int64_t sampling_bytes = 0;           // activations and logits of a sampling pass
  int64_t arena_bytes = 0;              // activations and gradients of a training pass
  int64_t process_bytes = 0;            // code, tables, requests and results
  int64_t head_chunk_elements = 0;      // logits of one chunk of a training pass
  int64_t sampling_chunk_elements = 0;  // the same, of sampling
  int64_t token_budget = 0;             // of one micro-batch
  int64_t num_checkpointed = 0;         // layers that a micro-batch of the budget computes twice
};

// ResourceExhausted naming the numbers when the weights leave too little.
absl::StatusOr<MemoryPlan> PlanMemory(const ModelSpec& model, const MemoryFacts& facts);

}  // namespace lathe::worker
