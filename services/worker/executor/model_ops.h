// What barriers do to models: create, load, restore, step, save, publish, drop.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/executor/checkpoint_writer.h"
#include "services/worker/executor/model_lanes.h"
#include "services/worker/executor/recovery_files.h"
#include "services/worker/executor/served_versions.h"
#include "services/worker/executor/snapshot_staging.h"
#include "services/worker/executor/version_table.h"
#include "services/worker/lora/adapter_pool.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// State of `model_id` as the engine compares it; nullopt: not here.
std::optional<ModelState> StateOf(const AdapterPool& adapters, const std::string& model_id);

struct ModelOpsOptions {
  // Who run the same barriers in the same order on other parts of the models.
  RankGroups ranks;
  NonFiniteGradients nonfinite_gradients = NonFiniteGradients::kSkip;
  // Of all adapters, with what trains them, sampler versions and what snapshots are staged in. More
  // models are refused.
  int64_t adapter_bytes = std::numeric_limits<int64_t>::max();
  // Of sampler versions in memory, at most what models leave of the above. More: fewer are read
  // again from disk.
  int64_t version_bytes = std::numeric_limits<int64_t>::max();
};

// Executor thread only; what it borrows must outlive it.
class ModelOps {
 public:
  ModelOps(const Model& model, CheckpointStore& store, CheckpointWriter& writer,
           RecoveryJobs& recovery_jobs, AdapterPool& adapters, VersionTable& versions,
           int64_t generation, const ModelOpsOptions& options);

  // Runs `barrier` whole or not at all. nullopt: nobody waits, or the report comes when a save is
  // durable. Whatever torch throws becomes an OpFailed, or the status of a SnapshotDone. A Snapshot
  // takes pauses; where none of the staging buffers is free, it waits for NextSnapshot.
  std::optional<Report> Run(const ModelLanes::Barrier& barrier);

  // A snapshot's buffer, when it is written.
  void GiveBack(at::Tensor buffer) { staging_.GiveBack(std::move(buffer), MaxStagingBuffers()); }
  // One that has waited for a buffer, if one is free: for its model's lane.
  std::optional<Snapshot> NextSnapshot();

  // Of trainable adapters, and of staged snapshots where that is memory of the device.
  int64_t AdapterBytes() const { return ModelBytes(""); }
  int64_t StagedBytes() const { return model_.device().is_cpu() ? staging_.num_bytes() : 0; }

  // What sampler versions may take of the memory now.
  int64_t VersionBytes() const;

  // Whether a version has to be in memory to be saved: ranks give their parts to the first.
  bool SavesFromMemory() const { return !options_.ranks.tp.is_alone(); }
  // Of what this rank has of a version, what it writes of it.
  WriteVersion StageVersion(WriteVersion work) const;
  // A version as other processes read it; nullopt: the first rank has it. Of a rank alone on a CPU
  // the weights themselves.
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
  AdamParams LastAdam(const std::string& model_id) const;
  // Of all models but `except_id`.
  int64_t ModelBytes(const std::string& except_id) const;
  // Of one staging buffer for any model but `except_id`; 0 where they are not of the device.
  int64_t StagingBytes(const std::string& except_id) const;
  // 2, or 1 when memory is short: there is always room for one.
  int64_t MaxStagingBuffers() const;
  // ResourceExhausted: no room for an adapter of this size in place of what `model_id` has.
  // Versions that no sample holds make room.
  absl::Status CheckRoom(const std::string& model_id, const AdapterSizes& sizes) const;

  const Model& model_;
  CheckpointStore& store_;
  CheckpointWriter& writer_;
  RecoveryJobs& recovery_jobs_;
  AdapterPool& adapters_;
  VersionTable& versions_;
  const int64_t generation_;
  const ModelOpsOptions options_;
  std::map<std::string, AdamParams> last_adam_;  // by model id, of the last step
  SnapshotStaging staging_;
  std::deque<Snapshot> waiting_snapshots_;  // for a buffer
};

}  // namespace lathe::worker
