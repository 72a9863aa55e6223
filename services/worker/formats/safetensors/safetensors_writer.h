// Writes safetensors files, synced to disk, and computes their digests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/age/age.h"
#include "services/worker/formats/safetensors/sha256.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // any device and strides
};

struct SafetensorsDigest : FileDigest {
  std::vector<std::string> tensors;  // digest of each tensor's bytes, hex; empty if encrypted
};

// Creates `path` with the tensors' bytes in the given order, then syncs it. Names must differ. The
// file is age-encrypted if there are recipients. The caller discards the file after an error. For
// tensors that this worker creates, no other thread takes part.
absl::StatusOr<SafetensorsDigest> WriteSafetensors(
    const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::vector<AgeRecipient>& recipients = {});

}  // namespace lathe::worker
