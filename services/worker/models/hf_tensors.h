// The tensors of an HF folder, from one safetensors file or from shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <absl/status/statusor.h>

#include "services/worker/checkpoint/safetensors.h"

namespace lathe::worker {

inline constexpr char kSingleWeightFile[] = "model.safetensors";
inline constexpr char kWeightIndexFile[] = "model.safetensors.index.json";

// The safetensors files of a model folder: the single one, or those its index names. NotFound when
// it holds neither.
absl::StatusOr<std::vector<std::filesystem::path>> WeightFiles(const std::filesystem::path& folder);

// Reads each tensor once and keeps account: what was read goes into the content hash, what was left
// over is reported, so that no weight is silently ignored.
class HfTensors {
 public:
  // Errors as WeightFiles and SafetensorsFile::Open have them.
  // `progress` gets the share of bytes read.
  static absl::StatusOr<HfTensors> Open(const std::filesystem::path& folder,
                                        std::function<void(double)> progress);

  bool Has(const std::string& name) const { return file_of_.count(name) > 0; }

  // What `name` is stored as; nothing when it is missing or was read.
  std::optional<at::ScalarType> DtypeOf(const std::string& name) const;

  // Tensor `name` as it is stored, on the CPU. InvalidArgument when it is missing, not a float
  // type, or of another shape.
  absl::StatusOr<at::Tensor> Read(const std::string& name, at::IntArrayRef shape);

  // The same copied into `out`, widening to out's dtype and moving to its device.
  absl::Status ReadInto(const std::string& name, at::Tensor out);

  // Marks a tensor as deliberately not used.
  void Ignore(const std::string& name) { file_of_.erase(name); }

  // Names not yet read or ignored, sorted.
  std::vector<std::string> Remaining() const;

  // Hex SHA-256 over `prefix` and names, dtypes, shapes and bytes of the tensors read.
  std::string ContentHash(const std::string& prefix) const;

 private:
  HfTensors() = default;
  absl::Status AddFile(const std::filesystem::path& path);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;       // tensors not read yet -> index into files_
  std::map<std::string, std::string> digests_;  // tensors read -> digest of dtype, shape, bytes
  std::function<void(double)> progress_;
  int64_t total_bytes_ = 0;
  int64_t read_bytes_ = 0;
};

}  // namespace lathe::worker
