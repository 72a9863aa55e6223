// A checkpoint store of a small model, for tests.
#pragma once

#include <string>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/spec/dense_decoder.h"
#include "services/worker/testing/test_temp_dir.h"

namespace lathe::worker {

inline DecoderSpec SmallModel() {
  return DenseDecoder({.family = "qwen3",
                       .num_layers = 2,
                       .hidden_size = 8,
                       .intermediate_size = 12,
                       .num_heads = 2,
                       .num_kv_heads = 1,
                       .head_dim = 4,
                       .vocab_size = 16});
}

inline CheckpointStore MakeStore(const TempDir& dir, const std::string& base_hash = "hash") {
  return CheckpointStore(dir.path(), WholeModel(SmallModel()), "base", base_hash);
}

// Returns the state of model "m" with this adapter; shares its tensors.
inline ModelSnapshot StateToSave(const Adapter& adapter, const AdamParams& last_adam = {}) {
  return {.model_id = "m",
          .weights = adapter.Publish(),
          .exp_avg = adapter.exp_avg,
          .exp_avg_sq = adapter.exp_avg_sq,
          .num_steps = adapter.num_steps,
          .last_adam = last_adam,
          .applied_seq = adapter.applied_seq};
}

}  // namespace lathe::worker
