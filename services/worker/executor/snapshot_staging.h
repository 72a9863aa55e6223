// Copies of models that wait to be written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// One model's copy, and the memory it lies in.
struct StagedModel {
  ModelSnapshot model;  // without tensors: another rank has them
  at::Tensor buffer;
  absl::Duration staging_time;  // without pauses
};

// A few buffers for all models, used again and again: fresh pages cost more than the copy. Weights
// are not copied: while somebody holds them, they do not change. Of several ranks the first has the
// whole model in its buffer, gathered. Executor thread only.
class SnapshotStaging {
 public:
  // Memory of a staged model: two moments and the accumulator in a buffer; weights that are held,
  // or in the buffer too. The same on every rank.
  static int64_t NumBytes(const AdapterSizes& sizes, int64_t num_data_ranks) {
    return (3 * sizes.whole + num_data_ranks * sizes.shares) * int64_t{sizeof(float)};
  }

  // Of all buffers, in use or not.
  int64_t num_bytes() const { return num_bytes_; }

  bool HasFree(int64_t max_buffers) const { return num_taken_ < max_buffers; }

  // The model as it is now, in one of `max_buffers`, of which one must be free. Takes pauses on the
  // way, in which the adapter must not change; with other ranks, who all stage it, none. Throws
  // when memory runs out.
  StagedModel Stage(const std::string& model_id, const Adapter& adapter,
                    const AdamParams& last_adam, const RankGroups& ranks);
  // Once it is written, or not to be.
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
