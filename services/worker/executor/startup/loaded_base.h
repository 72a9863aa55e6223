// Parts that the executor loads before it can work.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/checkpoint/checkpoint_store.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/executor/executor.h"
#include "services/worker/executor/startup/memory_plan.h"
#include "services/worker/models/load_model.h"
#include "services/worker/tokenizer/tokenizer.h"
#include "services/worker/training/micro_batches.h"

namespace lathe::worker {

struct LoadedBase {
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // unset if missing or of an unknown kind: no stop strings
  std::unique_ptr<CheckpointStore> store;
  MemoryPlan memory;
  int64_t prefill_chunk_tokens = 0;  // limit of prompt tokens in a pass beside samples that decode
  Numerics numerics = Numerics::kFast;
  ModelInfo info;
};

// Returns the device that `name` (auto, cpu, cuda) means on this machine. InvalidArgument: another
// name, or cuda without a GPU.
absl::StatusOr<at::Device> ChooseDevice(const std::string& name);

// Returns the size of the weight files in `folder`. 0 if it cannot be read.
int64_t WeightBytes(const std::filesystem::path& folder);

// Returns the values that ranks base decisions on and that must be the same on all ranks, by name.
std::map<std::string, std::string> MustAgree(const ExecutorOptions& options, at::Device device);

// Reads the base model and plans memory around it. With exact numerics it also runs
// ProbeExactNumerics. Collective: all ranks call it, and each reads its part. They get the same
// plan. If one rank fails, all ranks get one error that names it. `control` has all ranks and moves
// CPU tensors. Throws RanksDisagree.
absl::StatusOr<LoadedBase> LoadBase(const ExecutorOptions& options, at::Device device,
                                    const LoadProgress& progress, const RankGroup& control = {},
                                    const RankGroups& groups = {});

}  // namespace lathe::worker
