// Opens an HF model folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "services/worker/models/model.h"

namespace lathe::worker {

struct LoadedModel {
  std::unique_ptr<Model> model;
  std::string content_hash;  // hex SHA-256 over config fields and tensors' names, shapes and bytes
};

// Arithmetic of products with bf16 matrices. Matrices of other dtypes are multiplied in fp32.
enum class ComputeDtype {
  kAuto,  // kBf16 if the device multiplies bf16
  kFp32,  // matrices are widened to fp32
  kBf16,  // activations are rounded to bf16, sums are fp32
};

// Parses "auto", "fp32" or "bf16"; InvalidArgument for any other name.
absl::StatusOr<ComputeDtype> ParseComputeDtype(const std::string& name);

// The loading thread calls it with the fraction done, 0 to 1.
using LoadProgress = std::function<void(double fraction)>;

// Reads `folder` (config.json, safetensors) onto `device`. All ranks of `tp` and `fsdp` call it.
// Each reads its tp part, and with `fsdp` its share of that part's matrices.
//
// NotFound if a file is missing. InvalidArgument if a family, config value or tensor is not
// supported (the message names it), or if kBf16 is given and the CPU or the folder has no bf16. All
// ranks return the error of the first failed rank. FailedPrecondition if the ranks' folders differ
// in config, tensors or layout. Sharded tensors are not compared in full: the content hash covers
// one rank's copy of each.
absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress,
                                      ComputeDtype compute_dtype = ComputeDtype::kAuto,
                                      const RankGroup& tp = {}, const RankGroup& fsdp = {});

// A folder's model without its weights.
struct ModelDescription {
  DecoderSpec spec;
  std::string content_hash;  // as in LoadedModel
};

// Reads each tensor of `folder` once and keeps none. Errors as LoadModel.
absl::StatusOr<ModelDescription> DescribeModel(const std::filesystem::path& folder);

}  // namespace lathe::worker
