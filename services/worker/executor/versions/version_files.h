// Moves weights of sampler versions between memory, files and other processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/checkpoint/spill_file.h"
#include "services/worker/executor/versions/version_reader.h"
#include "services/worker/lora/adapter_weights.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Weights whose only copy on disk is in the spill file.
struct SpilledWeights {
  LoraSpec lora;
  std::shared_ptr<const SpillFile::Extent> extent;
};

// Reads a checkpoint directory and verifies it.
struct ReadCheckpoint {
  std::string dir;
};
struct ReadSpilled {
  SpilledWeights spilled;
};
// Reads from the memory of another process.
struct ReadServed {
  VersionAddress source;
  int64_t seq_id = 0;
};
// Source of a version's weights: a PublishVersion, or (empty) a checkpoint.
struct Publication {
  std::string model_id;
  int64_t seq_id = 0;
  int64_t applied_seq = 0;
};
// Returns the weights on the CPU. DataLoss: they are not the ones written.
absl::StatusOr<std::shared_ptr<const AdapterWeights>> ReadSpilledWeights(
    const SpilledWeights& spilled, const ModelPart& model);

struct SpillWeights {
  std::shared_ptr<const AdapterWeights> weights;
};

struct VersionJob {
  int64_t generation = 0;
  int64_t ticket = 0;  // names the job in the VersionTable
  std::string version_id;
  std::variant<ReadCheckpoint, ReadSpilled, SpillWeights, ReadServed> work;
};

struct VersionJobDone {
  int64_t generation = 0;
  int64_t ticket = 0;
  std::string version_id;
  bool is_spill = false;
  std::optional<Publication> publication;  // set by a ReadServed that succeeded
  // Weights after a read, or their place in the spill file after a spill.
  absl::StatusOr<std::variant<std::shared_ptr<const AdapterWeights>, SpilledWeights>> result;
  absl::Duration spent;
};

// Destination of a VersionTable's jobs. Each job comes back as one VersionJobDone.
class VersionJobs {
 public:
  virtual ~VersionJobs() = default;
  // ResourceExhausted: too many jobs are waiting.
  virtual absl::Status Enqueue(VersionJob job) = 0;
};

// Runs the jobs, one at a time. Reads from other processes may run concurrently with them and each
// other. `store` and `reader` (null: reads nothing from other processes) must outlive it.
class VersionFiles {
 public:
  // The spill file is in the folder of the store's unfinished saves.
  VersionFiles(const CheckpointStore& store, at::Device device, VersionReader* reader = nullptr);

  // Never throws.
  VersionJobDone Run(const VersionJob& job);
  bool reads_served() const { return reader_ != nullptr; }

 private:
  using Result = decltype(VersionJobDone::result);
  Result Do(const ReadCheckpoint& work);
  Result Do(const ReadSpilled& work);
  Result Do(const SpillWeights& work);
  Result Do(const ReadServed& work, const std::string& version_id,
            std::optional<Publication>& publication) const;
  absl::Status CheckHeader(const VersionHeader& header) const;

  const CheckpointStore& store_;
  const at::Device device_;
  VersionReader* const reader_;
  SpillFile spill_file_;
};

}  // namespace lathe::worker
