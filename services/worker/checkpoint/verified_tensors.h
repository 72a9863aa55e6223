// Reads tensors of a checkpoint and verifies them against its manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/checkpoint/manifest.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Destination of a tensor or a part of it. A part is the positions from `begin` on of dimension
// `dim`, whose size in the file is `whole_size`.
struct TensorPlace {
  at::Tensor into;  // on the CPU, any strides; converted to its dtype
  int64_t dim = 0;
  int64_t begin = 0;
  int64_t whole_size = 0;

  std::vector<int64_t> whole_shape() const {
    std::vector<int64_t> shape = into.sizes().vec();
    shape[dim] = whole_size;
    return shape;
  }
};

// Key: file and tensor name.
using TensorPlaces = std::map<std::pair<std::string, std::string>, TensorPlace>;

// Checksums to verify. kFiles: all. kTensors: skips the checksums of files with wanted tensors but
// verifies all tensors in them; files with other tensors only are not read.
enum class Verify { kFiles, kTensors };

// Fills `places` from the files in `dir`. Checks the size of every file, its checksum, and the
// dtype, shape and checksum of every tensor, as `verify` says. DataLoss names the file, and the
// tensor if the damage is in one. The contents of `places` are then undefined.
absl::Status ReadVerifiedTensors(const std::filesystem::path& dir, const Manifest& manifest,
                                 Verify verify, const TensorPlaces& places);

}  // namespace lathe::worker
