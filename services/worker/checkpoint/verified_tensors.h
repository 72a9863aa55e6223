// Tensors of a checkpoint, read and compared with its manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/aten.h"
#include "services/worker/checkpoint/manifest.h"

namespace lathe::worker {

// Where a tensor goes, or a part of it: positions from `begin` on of dimension `dim`, which has
// `whole_size` in the file.
struct TensorPlace {
  at::Tensor into;  // on the CPU, any strides, converted to its dtype
  int64_t dim = 0;
  int64_t begin = 0;
  int64_t whole_size = 0;

  std::vector<int64_t> whole_shape() const {
    std::vector<int64_t> shape = into.sizes().vec();
    shape[dim] = whole_size;
    return shape;
  }
};

// By file and name.
using TensorPlaces = std::map<std::pair<std::string, std::string>, TensorPlace>;

// Which checksums are compared: with kTensors those of the files that hold wanted tensors are not,
// but those of all tensors in them, and files of other tensors are not read.
enum class Verify { kFiles, kTensors };

// Fills `places` from the files in `dir`. Checks every file's size, every file's checksum, dtype,
// shape and checksum of every tensor. DataLoss names the file, and the tensor where the damage lies
// in one; what is in `places` is then worth nothing.
absl::Status ReadVerifiedTensors(const std::filesystem::path& dir, const Manifest& manifest,
                                 Verify verify, const TensorPlaces& places);

}  // namespace lathe::worker
