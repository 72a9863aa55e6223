// Decode passes on a GPU, recorded once and replayed: one launch instead of some hundred.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "services/worker/aten.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/kv_cache.h"

namespace lathe::worker {

// The next token's row of one sequence: the last position of `kv`.
struct DecodeRow {
  const KvSequence* kv = nullptr;
  int32_t token = 0;
  const AdapterWeights* adapter = nullptr;  // null: the base model
};

// One graph per number of rows (powers of two; the rows between are padded) with and without
// adapters, recorded when first needed. Whatever changes from pass to pass is read from memory that
// stays where it is: tokens, positions, block tables, and a table of where each row's adapter lies.
// So graphs hold as long as the base model and the cache do.
// Executor thread only; `model` and `cache` must outlive it.
class DecodeGraphs {
 public:
  virtual ~DecodeGraphs() = default;

  // For at most `most_rows` rows. Null where nothing is recorded: in builds without CUDA, on a CPU,
  // and for caches that are not in pages.
  static std::unique_ptr<DecodeGraphs> Create(const Model& model, KvCache& cache,
                                              int64_t most_rows);

  // Logits [rows, V] fp32, valid until the next call. Undefined, and nothing done, when there are
  // more rows than `most_rows`, or adapters that LoraSlots does not take.
  virtual at::Tensor Run(std::span<const DecodeRow> rows) = 0;
};

}  // namespace lathe::worker
