// Divides the device's memory into shares. Does not include torch.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/training/pass_memory.h"

namespace lathe::worker {

// Measured inputs of the plan.
struct MemoryFacts {
  int64_t available_bytes = 0;  // for the whole process, before the weights are read
  double fraction = 0.9;        // share of available_bytes to plan with
  int64_t weight_bytes = 0;     // size of the base model in memory
  PassCompute compute = {.cpu_threads = 1};
  int64_t kv_element_bytes = 4;  // size of a number in the KV cache
  int64_t tokens_per_step = 0;   // largest micro-batch whose layer steps do not delay samples
  bool gathers_weights = false;  // FSDP: the weights are sharded, and unsharded for use
  // The role of the group allows it. One that only trains gets no cache. One that only samples gets
  // a small arena, for recorded passes of a GPU.
  bool trains = true;
  bool samples = true;
};

// All shares add up to at most available_bytes · fraction. The plan reserves the whole shares of
// adapters, saves and the cache. On a CPU they take memory from the machine only as they use it.
struct MemoryPlan {
  int64_t weight_bytes = 0;
  int64_t adapter_bytes = 0;    // adapters with moments and gradients, and sampler versions
  int64_t save_bytes = 0;       // saves that wait to be written; 0 on other devices than a CPU
  int64_t host_save_bytes = 0;  // the same in host memory, which is no part of the sum; 0 on a CPU
  int64_t kv_cache_bytes = 0;   // 0 in a group that does not sample
  int64_t sampling_bytes = 0;   // activations and logits of a sampling pass
  int64_t arena_bytes = 0;      // activations and gradients of a training pass
  int64_t process_bytes = 0;    // code, tables, requests and results
  int64_t head_chunk_elements = 0;      // logits of one chunk of a training pass
  int64_t sampling_chunk_elements = 0;  // the same, for sampling
  int64_t token_budget = 0;             // tokens of one micro-batch
  int64_t num_checkpointed = 0;         // layers with activation checkpointing, full micro-batch
};

// ResourceExhausted with the numbers if the weights leave too little.
absl::StatusOr<MemoryPlan> PlanMemory(const DecoderSpec& model, const MemoryFacts& facts);

}  // namespace lathe::worker
