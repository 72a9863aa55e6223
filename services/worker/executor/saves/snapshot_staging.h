// Copies of models that wait to be written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// A copy of one model, and the memory that holds it.
struct StagedModel {
  ModelSnapshot model;  // without tensors if another rank has them
  at::Tensor buffer;
  absl::Duration staging_time;  // without yields
};

// A few buffers for all models. They are reused, because fresh pages cost more than the copy.
// Weights are not copied: they do not change while they are referenced. With several ranks, rank 0
// gathers the whole model in its buffer. Executor thread only.
class SnapshotStaging {
 public:
  // Memory of a staged model: two moments and the accumulator in a buffer, and the weights,
  // referenced or in the buffer. The same on every rank.
  static int64_t NumBytes(const AdapterSizes& sizes, int64_t num_data_ranks) {
    return (3 * sizes.whole + num_data_ranks * sizes.shares) * int64_t{sizeof(float)};
  }

  // Size of all buffers, used or not.
  int64_t num_bytes() const { return num_bytes_; }

  bool HasFree(int64_t max_buffers) const { return num_taken_ < max_buffers; }

  // Copies the model's current state into one of `max_buffers` buffers, one of which must be free.
  // A single rank yields during the copy; the adapter must not change then. Several ranks all call
  // it, and do not yield. Throws if memory runs out.
  StagedModel Stage(const std::string& model_id, const Adapter& adapter,
                    const AdamParams& last_adam, const RankGroups& ranks);
  // Returns the buffer once it is written or discarded.
  void GiveBack(at::Tensor buffer, int64_t max_buffers);

 private:
  at::Tensor TakeBuffer(int64_t num_floats);
  void Free(at::Tensor buffer);
  void CopyTensors(const Adapter& adapter, StagedModel& staged);
  void GatherTensors(const Adapter& adapter, const RankGroups& ranks, StagedModel& staged);

  std::vector<at::Tensor> free_;
  int64_t num_taken_ = 0;
  int64_t num_bytes_ = 0;
};

}  // namespace lathe::worker
