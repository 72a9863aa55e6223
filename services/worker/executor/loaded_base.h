// What the executor loads before it can work.
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
#include "services/worker/executor/memory_plan.h"
#include "services/worker/models/load_model.h"
#include "services/worker/tokenizer/tokenizer.h"
#include "services/worker/training/micro_batches.h"

namespace lathe::worker {

struct LoadedBase {
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // missing or of an unknown kind: no stop strings
  std::unique_ptr<CheckpointStore> store;
  MemoryPlan memory;
  int64_t prefill_chunk_tokens = 0;  // prompt rows of a pass beside samples that decode
  Numerics numerics = Numerics::kFast;
  ModelInfo info;
};

// The device `name` (auto, cpu, cuda) means on this machine. InvalidArgument: another word, or cuda
// where there is none.
absl::StatusOr<at::Device> ChooseDevice(const std::string& name);

// Bytes of the weights in `folder`.
int64_t WeightBytes(const std::filesystem::path& folder);

// What ranks decide by, which must be the same on all of them, by its name.
std::map<std::string, std::string> MustAgree(const ExecutorOptions& options, at::Device device);

// Reads the base model, of several ranks each its part, and plans the memory around it. With exact
// numerics it also probes that this machine keeps their promise. All ranks call it; they plan the
// same, and where one fails all do, with one error that names it. `control` is all of them and
// moves CPU tensors. Throws RanksDisagree.
absl::StatusOr<LoadedBase> LoadBase(const ExecutorOptions& options, at::Device device,
                                    const LoadProgress& progress, const RankGroup& control = {},
                                    const RankGroups& groups = {});

}  // namespace lathe::worker
