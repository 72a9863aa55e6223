// Opens an HF model folder: the only place that knows which families exist.
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

// How products with bf16 matrices are computed; matrices of other dtypes are multiplied in fp32.
enum class ComputeDtype {
  kAuto,  // kBf16 where the device multiplies bf16
  kFp32,  // the matrices widened
  kBf16,  // activations rounded to bf16, sums in fp32
};

// auto, fp32 or bf16; InvalidArgument for another word.
absl::StatusOr<ComputeDtype> ParseComputeDtype(const std::string& name);

// Called from the loading thread with the share done, 0 to 1.
using LoadProgress = std::function<void(double fraction)>;

// Reads `folder` (config.json, safetensors) onto `device`: of ranks of `tp` and `fsdp`, which all
// call this, each its part, and of the matrices, with `fsdp`, its share of that. A missing file is
// NotFound; a family, config value or tensor that is not understood is InvalidArgument naming it;
// so is kBf16 where the CPU or the folder has no bf16. All ranks get the error of the first that
// has one; it is FailedPrecondition if their folders are not of one config and of the same tensors
// at the same places. Whether tensors that are cut have the same bytes in all folders is not asked:
// of each of them one rank's copy is what the content hash speaks of.
absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress,
                                      ComputeDtype compute_dtype = ComputeDtype::kAuto,
                                      const RankGroup& tp = {}, const RankGroup& fsdp = {});

}  // namespace lathe::worker
