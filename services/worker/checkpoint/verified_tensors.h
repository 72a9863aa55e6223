// Tensors of a checkpoint, read and compared with its manifest.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "absl/status/status.h"
#include "services/worker/checkpoint/manifest.h"

namespace lathe::worker {

// Where tensors go, by file and name: on the CPU, any strides, converted to their dtype.
using TensorPlaces = std::map<std::pair<std::string, std::string>, at::Tensor>;

// Which checksums are compared: with kTensors those of the files that hold wanted tensors are not,
// but those of all tensors in them, and files of other tensors are not read.
enum class Verify { kFiles, kTensors };

// Fills `places` from the files in `dir`. Checks every file's size, every file's checksum, dtype,
// shape and checksum of every tensor. DataLoss names the file, and the tensor where the damage lies
// in one; what is in `places` is then worth nothing.
absl::Status ReadVerifiedTensors(const std::filesystem::path& dir, const Manifest& manifest,
                                 Verify verify, const TensorPlaces& places);

}  // namespace lathe::worker
