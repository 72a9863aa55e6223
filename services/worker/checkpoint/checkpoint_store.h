// Saves adapters to checkpoint directories and loads them back, verified.
//
// A directory has adapter_model.safetensors and adapter_config.json (a folder `peft` loads),
// manifest.json and the empty file checkpoint_complete. The training and snapshot kinds add
// optimizer.safetensors with AdamW's moments. A snapshot with an open window adds
// gradient.safetensors with the accumulator. The files of the external kind may be encrypted; their
// names then end in .age. A directory appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/age/age.h"
#include "libs/common/object_store/checkpoint_cache.h"
#include "services/worker/checkpoint/gradient_shares.h"
#include "services/worker/checkpoint/manifest.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/spec/model_part.h"

namespace lathe::worker {

struct SavedCheckpoint {
  int64_t size_bytes = 0;  // sum over all files
  std::string manifest_sha256;
};

// The state of a whole model at one moment. Tensors are fp32 on the CPU. Weights and moments are
// [num_parameters] in the order of AdapterLayout of the whole model.
struct ModelSnapshot {
  std::string model_id;
  std::shared_ptr<const AdapterWeights> weights;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor gradient;         // from GatherShares; undefined if the window is empty
  int64_t num_data_ranks = 1;  // number of data ranks with a share in `gradient`
  int64_t num_steps = 0;
  AdamParams last_adam;
  int64_t applied_seq = 0;
  std::vector<int64_t> window;
};

struct LoadedAdapter {
  std::unique_ptr<Adapter> adapter;
  Manifest manifest;
};

// Saves whole adapters; loads this process's part of one. Thread-safe and stateless. Directories
// are relative to the store's root, or absolute and below it. With a cache, the root is the cache's
// folder: a save is published as objects before it returns, a load reads a copy of them, and a
// directory is a plain name. Loads are then also Unavailable, and saves too.
class CheckpointStore {
 public:
  // Load rejects checkpoints of another base model, by `base_content_hash`.
  CheckpointStore(std::filesystem::path root, ModelPart model, std::string base_model,
                  std::string base_content_hash, std::shared_ptr<CheckpointCache> cache = nullptr);

  // Saves fp32 master weights, moments and step count, without the window and its gradient.
  // `extra_json` is an object whose fields are copied into manifest.json. ResourceExhausted if the
  // disk is full, Internal on other I/O errors.
  absl::StatusOr<SavedCheckpoint> SaveTraining(const std::string& dir, const ModelSnapshot& model,
                                               const std::string& extra_json) const;

  // Saves the weights that samplers use, byte for byte. Errors as SaveTraining.
  absl::StatusOr<SavedCheckpoint> SaveSampler(const std::string& dir, const std::string& model_id,
                                              const AdapterWeights& weights, int64_t applied_seq,
                                              const std::string& extra_json) const;

  // Like SaveSampler, for handing out: encrypted to `recipients` unless that is empty. The manifest
  // of encrypted files does not describe their tensors.
  absl::StatusOr<SavedCheckpoint> SaveExternal(const std::string& dir, const std::string& model_id,
                                               const AdapterWeights& weights, int64_t applied_seq,
                                               const std::vector<AgeRecipient>& recipients,
                                               const std::string& extra_json) const;

  // Saves a snapshot. Errors as SaveTraining.
  absl::StatusOr<SavedCheckpoint> SaveSnapshot(const std::string& dir,
                                               const ModelSnapshot& snapshot,
                                               const std::string& extra_json) const;

  // Loads a checkpoint of training or sampler kind. Verifies the manifest, sizes and every
  // checksum. A mismatch is DataLoss, naming file and tensor. Another base model is
  // FailedPrecondition. Another kind, or `with_optimizer` on a sampler checkpoint, is
  // InvalidArgument. Without the optimizer, moments and step count are zero.
  absl::StatusOr<LoadedAdapter> Load(const std::string& dir, bool with_optimizer,
                                     at::Device device) const;

  // Loads a snapshot, including applied_seq and window, bit for bit if the number of ranks is the
  // same. With another number, the first holder of each matrix gets its whole gradient. Verified as
  // in Load; a snapshot of another model is DataLoss.
  absl::StatusOr<LoadedAdapter> Restore(const std::string& dir, const std::string& model_id,
                                        at::Device device, const DataPlace& place = {}) const;

  // Loads only the weights that samplers use, also from a snapshot. Like Load, but of the weights'
  // file it verifies only dtype, shape and checksum of each tensor, and of an optimizer's file only
  // the size.
  absl::StatusOr<std::shared_ptr<const AdapterWeights>> LoadWeights(const std::string& dir,
                                                                    at::Device device) const;

  // With a cache, fetches the files unless this machine has them, and keeps them while the result
  // lives. So a load that follows does not wait for the store. Errors as CheckpointCache::Open.
  absl::StatusOr<CheckpointCache::Pin> Fetch(const std::string& dir) const;
  CheckpointCache* cache() const { return cache_.get(); }  // may be null

  // Returns the manifest without verifying the files. NotFound, InvalidArgument.
  absl::StatusOr<Manifest> Describe(const std::string& dir) const;

  const std::filesystem::path& root() const { return root_; }
  const ModelPart& model() const { return model_; }
  const std::string& base_content_hash() const { return base_content_hash_; }

 private:
  // As in ModelSnapshot; undefined tensors are not saved.
  struct FlatTensors {
    at::Tensor weights;
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor gradient;
    int64_t num_data_ranks = 1;
  };

  // Returns `read` of the directory's files. A copy that turns out to be damaged is fetched again.
  template <typename Read>
  std::invoke_result_t<Read, const std::filesystem::path&> WithFiles(const std::string& dir,
                                                                     const Read& read) const;
  absl::StatusOr<Manifest> ReadLoadable(const std::filesystem::path& dir) const;
  absl::StatusOr<LoadedAdapter> LoadFrom(const std::filesystem::path& path, bool with_optimizer,
                                         at::Device device) const;
  absl::StatusOr<LoadedAdapter> RestoreFrom(const std::filesystem::path& path,
                                            const std::string& model_id, at::Device device,
                                            const DataPlace& place) const;
  absl::StatusOr<std::shared_ptr<const AdapterWeights>> LoadWeightsFrom(
      const std::filesystem::path& path, at::Device device) const;
  absl::StatusOr<LoadedAdapter> ReadAdapter(const std::filesystem::path& dir, Manifest manifest,
                                            bool with_optimizer, at::Device device,
                                            const DataPlace& place) const;
  absl::StatusOr<std::filesystem::path> Resolve(const std::string& dir) const;
  absl::StatusOr<SavedCheckpoint> Save(const std::string& dir, Manifest manifest,
                                       const FlatTensors& tensors,
                                       const std::vector<AgeRecipient>& recipients,
                                       const std::string& extra_json) const;

  const std::filesystem::path root_;
  const ModelPart model_;
  const std::string base_model_;
  const std::string base_content_hash_;
  const std::shared_ptr<CheckpointCache> cache_;  // null: directories are not objects
};

}  // namespace lathe::worker
