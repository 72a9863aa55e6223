// Copies of models that wait to be written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

// Copies models for snapshots and saves. A single rank yields after each bite of a copy; the
// adapter must not change then. Several ranks all make the same calls, and those that exchange
// parts do not yield. Rank 0 then gathers the whole model. Weights on a CPU are not copied: they do
// not change while they are referenced. Snapshots have a few buffers for all models. They are
// reused, because fresh pages cost more than the copy. Executor thread only.
class SnapshotStaging {
 public:
  // Memory of a staged snapshot: two moments and the accumulator in a buffer, and the weights,
  // referenced or in the buffer. The same on every rank.
  static int64_t NumBytes(const AdapterSizes& sizes, int64_t num_data_ranks) {
    return (3 * sizes.whole + num_data_ranks * sizes.shares) * int64_t{sizeof(float)};
  }

  // Memory of a staged save, with the weights that it may share. The same on every rank.
  static int64_t NumSaveBytes(const AdapterSizes& sizes, bool has_moments) {
    return (has_moments ? 3 : 1) * sizes.whole * int64_t{sizeof(float)};
  }

  // Size of all buffers, used or not.
  int64_t num_bytes() const { return num_bytes_; }

  bool HasFree(int64_t max_buffers) const { return num_taken_ < max_buffers; }

  // Copies the model's current state into one of `max_buffers` buffers, one of which must be free.
  // Throws if memory runs out.
  StagedModel Stage(const std::string& model_id, const Adapter& adapter,
                    const AdamParams& last_adam, const RankGroups& ranks);
  // Returns the buffer once it is written or discarded.
  void GiveBack(at::Tensor buffer, int64_t max_buffers);

  // Returns the model's current state without its accumulator, for a save. The moments are copies;
  // weights on a CPU stay shared until they change. nullopt on other ranks than 0. Throws if memory
  // runs out.
  static std::optional<ModelSnapshot> StageSave(const std::string& model_id, const Adapter& adapter,
                                                const AdamParams& last_adam,
                                                const RankGroups& ranks, bool has_moments);

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
