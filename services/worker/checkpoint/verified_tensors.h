// Tensors of a checkpoint, read and compared with its manifest.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/checkpoint/manifest.h"

namespace lathe::worker {

// Hex digest of the tensor's bytes in row-major order.
std::string TensorSha256(const at::Tensor& tensor);

class VerifiedTensors {
 public:
  // Checks every file's size and checksum and every tensor's dtype, shape and checksum. DataLoss
  // names the file, and the tensor where the damage lies in one.
  static absl::StatusOr<VerifiedTensors> Read(const std::filesystem::path& dir,
                                              const Manifest& manifest);

  // DataLoss when the tensor is missing or of another shape; converts the dtype.
  absl::Status CopyTo(const std::string& file, const std::string& name, at::Tensor into) const;

 private:
  std::map<std::pair<std::string, std::string>, at::Tensor> tensors_;  // by file and name
};

}  // namespace lathe::worker
