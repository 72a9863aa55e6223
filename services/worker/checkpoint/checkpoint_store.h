// Saves adapters to checkpoint directories and loads them back, verified.
//
// A directory holds adapter_model.safetensors and adapter_config.json (a folder `peft` loads),
// manifest.json and the empty file checkpoint_complete; of the training and the snapshot kind also
// optimizer.safetensors with AdamW's moments, and of a snapshot with an open window
// gradient.safetensors with the accumulator. The files of the external kind may be encrypted;
// their names then end in .age. It appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/age/age_recipient.h"
#include "services/worker/checkpoint/gradient_shares.h"
#include "services/worker/checkpoint/manifest.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/model_part.h"

namespace lathe::worker {

struct SavedCheckpoint {
  int64_t size_bytes = 0;  // of all files
  std::string manifest_sha256;
};

// What a whole model was made of at one moment. Tensors are fp32 on the CPU, weights and moments
// [num_parameters], laid out as AdapterLayout says of the whole model.
struct ModelSnapshot {
  std::string model_id;
  std::shared_ptr<const AdapterWeights> weights;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor gradient;         // as GatherShares gives it; undefined if the window is empty
  int64_t num_data_ranks = 1;  // whose shares are in it
  int64_t num_steps = 0;
  AdamParams last_adam;
  int64_t applied_seq = 0;
  std::vector<int64_t> window;
};

struct LoadedAdapter {
  std::unique_ptr<Adapter> adapter;
  Manifest manifest;
};

// Saves whole adapters; loads what this process holds of one. Thread-safe, holds no state.
// Directories are given relative to the store's root, or absolute below it.
class CheckpointStore {
 public:
  // Checkpoints of another base model (by `base_content_hash`) are refused.
  CheckpointStore(std::filesystem::path root, ModelPart model, std::string base_model,
                  std::string base_content_hash);

  // fp32 master weights, moments and step count. `extra_json` is an object whose fields are copied
  // into manifest.json. ResourceExhausted when the disk is full, Internal on other I/O errors.
  absl::StatusOr<SavedCheckpoint> SaveTraining(const std::string& dir, const std::string& model_id,
                                               const Adapter& adapter, const AdamParams& last_adam,
                                               const std::string& extra_json) const;

  // The weights as samplers read them, byte for byte.
  absl::StatusOr<SavedCheckpoint> SaveSampler(const std::string& dir, const std::string& model_id,
                                              const AdapterWeights& weights, int64_t applied_seq,
                                              const std::string& extra_json) const;

  // As SaveSampler, to be handed out: encrypted to `recipients` unless there are none. The manifest
  // of encrypted files says nothing of what they hold.
  absl::StatusOr<SavedCheckpoint> SaveExternal(const std::string& dir, const std::string& model_id,
                                               const AdapterWeights& weights, int64_t applied_seq,
                                               const std::vector<AgeRecipient>& recipients,
                                               const std::string& extra_json) const;

  // Errors as SaveTraining.
  absl::StatusOr<SavedCheckpoint> SaveSnapshot(const std::string& dir,
                                               const ModelSnapshot& snapshot,
                                               const std::string& extra_json) const;

  // Training or sampler kind. Verifies the manifest, sizes and every checksum; a mismatch is
  // DataLoss naming file and tensor, another base model FailedPrecondition, another kind or
  // `with_optimizer` on a sampler checkpoint InvalidArgument. Without the optimizer moments and
  // step count are zero.
  absl::StatusOr<LoadedAdapter> Load(const std::string& dir, bool with_optimizer,
                                     at::Device device) const;

  // Snapshot kind: the adapter as it was, applied_seq and window included; on as many ranks as it
  // was taken on, bit for bit. On others the first of those that hold the same of a matrix has all
  // of its gradient. Verified as Load does; a snapshot of another model is DataLoss.
  absl::StatusOr<LoadedAdapter> Restore(const std::string& dir, const std::string& model_id,
                                        at::Device device, const DataPlace& place = {}) const;

  // The weights alone, as samplers read them, of a snapshot too. As Load, but what is verified of
  // their file is what is used of it: dtype, shape and checksum of each tensor; of an optimizer's
  // file only its size.
  absl::StatusOr<std::shared_ptr<const AdapterWeights>> LoadWeights(const std::string& dir,
                                                                    at::Device device) const;

  // What the manifest says, nothing verified. NotFound, InvalidArgument.
  absl::StatusOr<Manifest> Describe(const std::string& dir) const;

  const std::filesystem::path& root() const { return root_; }
  const ModelPart& model() const { return model_; }
  const std::string& base_content_hash() const { return base_content_hash_; }

 private:
  // As those of a ModelSnapshot; undefined: not saved.
  struct FlatTensors {
    at::Tensor weights;
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor gradient;
    int64_t num_data_ranks = 1;
  };

  absl::StatusOr<Manifest> ReadLoadable(const std::filesystem::path& dir) const;
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
};

}  // namespace lathe::worker
