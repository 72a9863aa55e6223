// Writes the state that outlives the process besides users' checkpoints: snapshots of models, and
// sampler versions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/executor/saves/snapshot_staging.h"
#include "services/worker/executor/versions/version_files.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/reports.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct WriteSnapshot {
  Snapshot command;
  StagedModel staged;
};

struct WriteVersion {
  SaveVersion command;
  Publication publication;
  std::variant<std::shared_ptr<const AdapterWeights>, ReadSpilled, ReadCheckpoint> weights;
  std::string read_from;            // checkpoint that the weights were read from; empty: none
  int64_t ticket = 0;               // names the save in the VersionTable
  bool is_of_another_rank = false;  // another rank writes it
};

// With several ranks, rank 0 writes. The other ranks have the same jobs and write nothing.
struct RecoveryJob {
  int64_t generation = 0;
  int64_t number = 0;  // the same on all of several ranks
  std::variant<WriteSnapshot, WriteVersion> work;
};

struct RecoveryJobDone {
  int64_t generation = 0;
  int64_t number = 0;  // number of the job
  std::variant<SnapshotDone, VersionSaved> report;
  at::Tensor buffer;   // buffer of a snapshot, for reuse
  int64_t ticket = 0;  // ticket of a version's save
};

// Destination of the jobs. Each job comes back as one RecoveryJobDone.
class RecoveryJobs {
 public:
  virtual ~RecoveryJobs() = default;
  // ResourceExhausted: too many jobs are waiting.
  virtual absl::Status Enqueue(RecoveryJob job) = 0;
};

// Runs the jobs. `store` must outlive it.
class RecoveryFiles {
 public:
  explicit RecoveryFiles(const CheckpointStore& store) : store_(store) {}

  // Never throws.
  RecoveryJobDone Run(RecoveryJob job) const;

 private:
  RecoveryJobDone Do(WriteSnapshot work) const;
  RecoveryJobDone Do(WriteVersion work) const;
  absl::StatusOr<SavedCheckpoint> Save(const WriteVersion& work) const;
  absl::StatusOr<std::shared_ptr<const AdapterWeights>> WeightsOf(const WriteVersion& work) const;

  const CheckpointStore& store_;
};

}  // namespace lathe::worker
