// The tensors of an HF folder, from one safetensors file or from shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/aten.h"
#include "services/worker/checkpoint/safetensors.h"
#include "services/worker/models/shard.h"

namespace lathe::worker {

inline constexpr char kSingleWeightFile[] = "model.safetensors";
inline constexpr char kWeightIndexFile[] = "model.safetensors.index.json";

// The safetensors files of a model folder: the single one, or those its index names. NotFound when
// it holds neither.
absl::StatusOr<std::vector<std::filesystem::path>> WeightFiles(const std::filesystem::path& folder);

// Reads each tensor once and keeps account: what was read goes into the content hash, what was left
// over is reported, so that no weight is silently ignored.
//
// Of a tensor read in part nobody has all bytes at hand. Ranks that cut the same tensors, each
// reading its own part, share the digests out among them (DigestShare), and each adds all of them.
class HfTensors {
 public:
  // Errors as WeightFiles and SafetensorsFile::Open have them.
  // `progress` gets the share of bytes that were read or, of tensors read in part, passed over.
  static absl::StatusOr<HfTensors> Open(const std::filesystem::path& folder,
                                        std::function<void(double)> progress);

  bool Has(const std::string& name) const { return file_of_.count(name) > 0; }

  // What `name` is stored as; nothing when it is missing or was read.
  std::optional<at::ScalarType> DtypeOf(const std::string& name) const;

  // Tensor `name` as it is stored, on the CPU. InvalidArgument when it is missing, not a float
  // type, or of another shape.
  absl::StatusOr<at::Tensor> Read(const std::string& name, at::IntArrayRef shape);

  // Positions of dimension `dim` of the tensor, without padding; `shape` is of the whole tensor.
  // Reads no other bytes. Errors as Read.
  absl::StatusOr<at::Tensor> ReadPart(const std::string& name, at::IntArrayRef shape, int64_t dim,
                                      const Shard& shard);

  // Of what ReadPart gives some rows, or none: for ranks of which each reads others of one tensor.
  // In as many calls as it likes, and EndRows ends them. Errors as Read.
  absl::StatusOr<at::Tensor> ReadRows(const std::string& name, at::IntArrayRef shape, int64_t dim,
                                      const Shard& shard, const Shard& rows);
  void EndRows(const std::string& name);

  // As Read, copied into `out`, widening to out's dtype and moving to its device.
  absl::Status ReadInto(const std::string& name, at::Tensor out);

  // Marks a tensor as deliberately not used.
  void Ignore(const std::string& name) { file_of_.erase(name); }

  // Names not yet read or ignored, sorted.
  std::vector<std::string> Remaining() const;

  // Of the tensors' numbers, so far. What DigestShare reads is not in it.
  int64_t read_bytes() const { return read_bytes_; }

  // Hex SHA-256 by name.
  using Digests = std::map<std::string, std::string>;

  // Of those tensors that were read in part which fall to rank `index` of `num_ranks`: about as
  // many bytes as to any other. Reads them whole, a piece at a time; `progress` gets the share of
  // their bytes that it has read, after each.
  absl::StatusOr<Digests> DigestShare(int64_t index, int64_t num_ranks,
                                      const std::function<void(double)>& progress = nullptr) const;
  // What DigestShare gave on some rank, this one or another. FailedPrecondition: that rank has read
  // other tensors.
  absl::Status AddDigests(const Digests& digests);

  // Hex SHA-256 of what the headers say: each file's name, and where in it which tensor lies.
  std::string HeadersDigest() const;

  // Hex SHA-256 over the first row of each tensor: folders of two revisions of a model differ in
  // it. Ranks that each hash their share of another folder would not notice. DataLoss as Read.
  absl::StatusOr<std::string> FirstRowsDigest() const;

  // Hex SHA-256 over `prefix` and names, dtypes, shapes and bytes of the tensors read, of all of
  // which there are digests. How they were cut, and into how many files, does not matter.
  std::string ContentHash(const std::string& prefix) const;

 private:
  HfTensors() = default;
  absl::Status AddFile(const std::filesystem::path& path);
  // The file of `name`, whose tensor is a float one of this shape.
  absl::StatusOr<size_t> Find(const std::string& name, at::IntArrayRef shape) const;
  // After the last `num_bytes` of it were read.
  void Took(const std::string& name, int64_t num_bytes);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;     // tensors not read yet -> index into files_
  Digests digests_;                           // tensors read -> digest of dtype, shape, bytes
  std::map<std::string, size_t> undigested_;  // tensors read in part -> index into files_
  std::function<void(double)> progress_;
  int64_t total_bytes_ = 0;
  int64_t passed_bytes_ = 0;  // of all bytes of tensors that were read, in part or whole
  int64_t read_bytes_ = 0;
};

}  // namespace lathe::worker
