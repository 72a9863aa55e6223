// CUDA graphs of decode passes: recorded once and replayed, one launch in place of some hundred.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "services/worker/models/model.h"
#include "services/worker/sampling/attention/decode_pass.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// One graph per number of rows and most rank of their adapters, recorded when first needed. Row
// counts are powers of two; a pass is padded to the next one. Inputs that change from pass to pass
// have fixed addresses: tokens, positions, block tables, and a table of each row's adapter. So a
// graph stays valid as long as the base model and the cache do.
// Executor thread only; `model` and `cache` must outlive this object.
class DecodeGraphs {
 public:
  virtual ~DecodeGraphs() = default;

  // Supports at most `most_rows` rows. Returns null if graphs cannot be recorded: in builds without
  // CUDA, on a CPU, and for unpaged caches.
  static std::unique_ptr<DecodeGraphs> Create(const Model& model, KvCache& cache,
                                              int64_t most_rows);

  // Returns logits [rows, V] fp32, valid until the next call. Returns an undefined tensor if there
  // are more than `most_rows` rows, or if the pass cannot be recorded. A failed recording may have
  // written keys and values, which the caller then computes again.
  virtual at::Tensor Run(std::span<const DecodeRow> rows) = 0;
};

}  // namespace lathe::worker
