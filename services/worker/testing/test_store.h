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

}  // namespace lathe::worker
