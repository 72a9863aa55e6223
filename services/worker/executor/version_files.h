// Weights of sampler versions on their way between files and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/aten.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/checkpoint/spill_file.h"
#include "services/worker/executor/version_reader.h"
#include "services/worker/lora/adapter_weights.h"

namespace lathe::worker {

// Weights that are nowhere else on disk.
struct SpilledWeights {
  LoraSpec lora;
  std::shared_ptr<const SpillFile::Extent> extent;
};

// Of a checkpoint directory, verified.
struct ReadCheckpoint {
  std::string dir;
};
struct ReadSpilled {
  SpilledWeights spilled;
};
// From the memory of another process.
struct ReadServed {
  VersionAddress source;
  int64_t seq_id = 0;
};
// Where a version's weights come from: a PublishVersion, or (empty) a checkpoint.
struct Publication {
  std::string model_id;
  int64_t seq_id = 0;
  int64_t applied_seq = 0;
};
// On the CPU. DataLoss: they are not what was written.
absl::StatusOr<std::shared_ptr<const AdapterWeights>> ReadSpilledWeights(
    const SpilledWeights& spilled, const ModelPart& model);

struct SpillWeights {
  std::shared_ptr<const AdapterWeights> weights;
};

struct VersionJob {
  int64_t generation = 0;
  int64_t ticket = 0;  // of the VersionTable that wants it
  std::string version_id;
  std::variant<ReadCheckpoint, ReadSpilled, SpillWeights, ReadServed> work;
};

struct VersionJobDone {
  int64_t generation = 0;
  int64_t ticket = 0;
  std::string version_id;
  bool is_spill = false;
  std::optional<Publication> publication;  // of a ReadServed that went well
  // Weights of a read, or where they are after a spill.
  absl::StatusOr<std::variant<std::shared_ptr<const AdapterWeights>, SpilledWeights>> result;
  absl::Duration spent;
};

// Where a VersionTable sends its jobs; each comes back as one VersionJobDone.
class VersionJobs {
 public:
  virtual ~VersionJobs() = default;
  // ResourceExhausted: too many wait.
  virtual absl::Status Enqueue(VersionJob job) = 0;
};

// Does the jobs, one at a time, but for those that read from other processes: any number of them,
// on threads of their own. `store` and `reader` (null: there are none of those) must outlive it.
class VersionFiles {
 public:
  // What is spilled lies beside the store's unfinished saves.
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
