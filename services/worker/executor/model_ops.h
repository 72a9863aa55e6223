// The operations that barriers do on models: create, load, restore, step, save, publish, drop.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/executor/planning/model_lanes.h"
#include "services/worker/executor/saves/checkpoint_writer.h"
#include "services/worker/executor/saves/snapshot_staging.h"
#include "services/worker/executor/versions/recovery_files.h"
#include "services/worker/executor/versions/served_versions.h"
#include "services/worker/executor/versions/version_table.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Returns the state of `model_id` for comparison by the engine; nullopt: the model is not here.
std::optional<ModelState> StateOf(const AdapterPool& adapters, const std::string& model_id);

struct ModelOpsOptions {
  // The groups of this rank. Their ranks run the same barriers in the same order on other parts of
  // the models.
  RankGroups ranks;
  NonFiniteGradients nonfinite_gradients = NonFiniteGradients::kSkip;
  // Memory for all adapters with their training state, sampler versions and staging buffers of
  // snapshots; on a CPU also for what a save takes beyond `save_bytes`. Models that do not fit are
  // refused.
  int64_t adapter_bytes = std::numeric_limits<int64_t>::max();
  // Memory for sampler versions; at most what models leave of `adapter_bytes`. More means fewer
  // reads from disk.
  int64_t version_bytes = std::numeric_limits<int64_t>::max();
  // Memory for staged saves. A save that would exceed it waits until others are written; a larger
  // one waits for all others. More means that models with a save wait less for the disk.
  int64_t save_bytes = std::numeric_limits<int64_t>::max();
};

// Executor thread only. All referenced objects must outlive it.
class ModelOps {
 public:
  ModelOps(const Model& model, CheckpointStore& store, CheckpointWriter& writer,
           RecoveryJobs& recovery_jobs, AdapterPool& adapters, VersionTable& versions,
           int64_t generation, const ModelOpsOptions& options);

  // Returns false if `barrier` must wait in its lane: a save without room for its copy, or behind
  // one that waits. Saves get room in the order in which they first asked. If true, Run it next.
  bool MayRun(const ModelLanes::Barrier& barrier);

  // Runs `barrier` completely or not at all. nullopt: no answer is expected, or the report follows
  // when a save is durable. An exception of torch becomes an OpFailed or the status of a
  // SnapshotDone. A Snapshot and a SaveCheckpoint have yield points. If no staging buffer is free,
  // a Snapshot is queued for NextSnapshot.
  std::optional<Report> Run(const ModelLanes::Barrier& barrier);

  // Returns a snapshot's buffer once it is written.
  void GiveBack(at::Tensor buffer) { staging_.GiveBack(std::move(buffer), MaxStagingBuffers()); }
  // Returns a queued snapshot to push to its model's lane, if a buffer is free.
  std::optional<Snapshot> NextSnapshot();

  // Memory of trainable adapters, and of staged snapshots if they are in device memory.
  int64_t AdapterBytes() const { return ModelBytes(""); }
  int64_t StagedBytes() const { return model_.device().is_cpu() ? staging_.num_bytes() : 0; }
  // Memory of staged saves, if this rank has them in device memory.
  int64_t SaveBytes() const;

  // Returns the memory that sampler versions may take now.
  int64_t VersionBytes() const;

  // Returns true if a version must be in memory to be saved, because rank 0 gathers the ranks'
  // parts.
  bool SavesFromMemory() const { return !options_.ranks.tp.is_alone(); }
  // Replaces this rank's part of a version by what this rank writes. Collective over tp.
  WriteVersion StageVersion(WriteVersion work) const;
  // Returns a version's weights as other processes read them; nullopt: rank 0 has them. A
  // single rank on a CPU shares the weights instead of copying them.
  std::optional<ServedVersion> ServedCopy(const SamplerVersion& version) const;

 private:
  using Outcome = absl::StatusOr<std::optional<Report>>;

  template <typename Command>
  Outcome DoGuarded(const Command& command);
  Outcome Do(const CreateAdapter& command);
  Outcome Do(const LoadAdapter& command);
  Outcome Do(const DropAdapter& command);
  Outcome Do(const OptimStep& command);
  Outcome Do(const ClearGradient& command);
  Outcome Do(const SaveCheckpoint& command);
  Outcome Do(const RestoreAdapter& command);
  Outcome Do(const Snapshot& command);
  Outcome Do(const PublishVersion& command);

  absl::StatusOr<std::shared_ptr<Adapter>> Find(const std::string& model_id) const;
  // With an object store and several ranks, waits until each rank's machine has a copy of `dir`.
  // The ranks' collectives wait less long than a fetch may take.
  absl::StatusOr<std::optional<CheckpointCache::Pin>> FetchOnAllRanks(const std::string& dir);
  AdamParams LastAdam(const std::string& model_id) const;
  // Memory of all models but `except_id`.
  int64_t ModelBytes(const std::string& except_id) const;
  // Size of one staging buffer for any model but `except_id`. 0 if buffers are not in device
  // memory.
  int64_t StagingBytes(const std::string& except_id) const;
  // Memory that the largest save of any model but `except_id` takes beyond save_bytes. 0 if saves
  // are not in device memory.
  int64_t LargeSaveBytes(const std::string& except_id) const;
  int64_t LargeSaveBytes(const AdapterSizes& sizes) const;
  // Returns 2, or 1 if memory is short. One always fits.
  int64_t MaxStagingBuffers() const;
  // ResourceExhausted: no room for an adapter of this size in place of `model_id`. Versions that no
  // sample uses make room.
  enum class RoomFor { kAdapter, kAdapterAndSaves };
  absl::Status CheckRoom(const std::string& model_id, const AdapterSizes& sizes,
                         RoomFor room_for) const;

  const Model& model_;
  CheckpointStore& store_;
  CheckpointWriter& writer_;
  RecoveryJobs& recovery_jobs_;
  AdapterPool& adapters_;
  VersionTable& versions_;
  const int64_t generation_;
  const ModelOpsOptions options_;
  std::map<std::string, AdamParams> last_adam_;  // by model id; parameters of the last step
  SnapshotStaging staging_;
  std::deque<Snapshot> waiting_snapshots_;  // they wait for a buffer
  // Saves that wait for room: their places in the line by model id, and the places.
  std::map<std::string, int64_t> waiting_saves_;
  std::set<int64_t> places_;
  int64_t next_place_ = 0;
};

}  // namespace lathe::worker
