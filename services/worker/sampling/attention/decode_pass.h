// A decode pass on a GPU whose inputs lie at fixed addresses, so that it can be recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "services/worker/lora/lora_slots.h"
#include "services/worker/models/model.h"
#include "services/worker/sampling/attention/paged_device_attention.h"
#include "services/worker/sampling/cache/kv_cache.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// One row of a decode pass: the token at the last position of `kv`.
struct DecodeRow {
  const KvSequence* kv = nullptr;
  int32_t token = 0;
  const AdapterWeights* adapter = nullptr;  // null: the base model
};

// The buffers of all passes. Passes of one number of rows always use the same parts of them.
// Executor thread only; `model` and `cache` must outlive this object.
class DecodeBuffers {
 public:
  // A pass of a fixed number of rows, with its views of the buffers.
  struct Pass {
    struct Planned {
      PagedPass pass;
      PagedWorkspaceSizes sizes;
    };

    int64_t num_rows = 0;
    bool has_lora = false;
    at::Tensor tokens;     // [num_rows] int64
    at::Tensor positions;  // [num_rows] int64
    PagedInputs inputs;
    PagedRows rows;                     // of the next run
    std::map<int64_t, Planned> passes;  // by window; made by the first run
  };

  // Supports at most `most_rows` rows. Allocates the cache too.
  DecodeBuffers(const Model& model, KvCache& cache, int64_t most_rows);

  // Assigns each row its adapter. Returns the most rank of the pass, see LoraSlots::Fill.
  int64_t FillAdapters(std::span<const DecodeRow> rows);

  // Returns the views of a pass. Its first Forward makes plans and allocates their workspaces.
  Pass PassOf(int64_t num_rows, bool has_lora) const;

  // Copies the inputs to the device in two transfers and plans the pass for their lengths. `rows`
  // may be fewer than the pass has; the others are padding.
  void SetInputs(std::span<const DecodeRow> rows, Pass& pass) const;

  // Runs the model and writes to the first rows of logits().
  void Forward(Pass& pass) const;

  // Calls `replay`, which queues a recording of Forward. The ranks of axis tp notice one that does
  // not come.
  void Replay(const std::function<void()>& replay) const {
    model_.tp().Replay("decode pass", replay);
  }

  // [most_rows, V] fp32
  const at::Tensor& logits() const { return logits_; }

 private:
  at::Tensor OnDevice(at::IntArrayRef sizes, at::ScalarType dtype) const;
  void Plan(const PagedRows& rows, Pass::Planned& planned) const;
  const PagedPass& PassFor(const AttentionSpec& spec, Pass& pass) const;

  const Model& model_;
  KvCache& cache_;
  const int64_t most_pages_;  // of a sequence
  LoraSlots lora_;
  at::Tensor tokens_and_positions_;  // [2 most_rows] int64
  at::Tensor numbers_;               // int32: PagedInputs of a pass, concatenated
  at::Tensor logits_;
};

}  // namespace lathe::worker
