// What barriers do to models: create, load, step, save, publish, drop.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/executor/checkpoint_writer.h"
#include "services/worker/executor/model_lanes.h"
#include "services/worker/executor/version_table.h"
#include "services/worker/lora/adapter_pool.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// State of `model_id` as the engine compares it; nullopt: not here.
std::optional<ModelState> StateOf(const AdapterPool& adapters, const std::string& model_id);

struct ModelOpsOptions {
  NonFiniteGradients nonfinite_gradients = NonFiniteGradients::kSkip;
  // Of all adapters, with what trains them, and sampler versions. More models are refused.
  int64_t adapter_bytes = std::numeric_limits<int64_t>::max();
  // Of sampler versions in memory, at most what models leave of the above. More: fewer are read
  // again from disk.
  int64_t version_bytes = std::numeric_limits<int64_t>::max();
};

// Executor thread only; what it borrows must outlive it.
class ModelOps {
 public:
  ModelOps(const Model& model, CheckpointStore& store, CheckpointWriter& writer,
           AdapterPool& adapters, VersionTable& versions, int64_t generation,
           const ModelOpsOptions& options);

  // Runs `barrier` whole or not at all. nullopt: nobody waits, or the report comes when a save is
  // durable. Whatever torch throws becomes an OpFailed.
  std::optional<Report> Run(const ModelLanes::Barrier& barrier);

  // What sampler versions may take of the memory now.
  int64_t VersionBytes() const;

 private:
  using Outcome = absl::StatusOr<std::optional<Report>>;

  Outcome Do(const CreateAdapter& command);
  Outcome Do(const LoadAdapter& command);
  Outcome Do(const DropAdapter& command);
  Outcome Do(const OptimStep& command);
  Outcome Do(const ClearGradient& command);
  Outcome Do(const SaveCheckpoint& command);
  Outcome Do(const PublishVersion& command);

  absl::StatusOr<std::shared_ptr<Adapter>> Find(const std::string& model_id) const;
  // Of all models but `except_id`.
  int64_t ModelBytes(const std::string& except_id) const;
  // ResourceExhausted: no room for an adapter of this size in place of what `model_id` has.
  // Versions that no sample holds make room.
  absl::Status CheckRoom(const std::string& model_id, int64_t num_parameters) const;

  const Model& model_;
  CheckpointStore& store_;
  CheckpointWriter& writer_;
  AdapterPool& adapters_;
  VersionTable& versions_;
  const int64_t generation_;
  const ModelOpsOptions options_;
  std::map<std::string, AdamParams> last_adam_;  // by model id, of the last step
};

}  // namespace lathe::worker
