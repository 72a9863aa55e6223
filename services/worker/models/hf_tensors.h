// The tensors of an HF folder: one safetensors file, or several files with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>

#include "services/worker/formats/safetensors/safetensors.h"
#include "services/worker/spec/shard.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

inline constexpr char kSingleWeightFile[] = "model.safetensors";
inline constexpr char kWeightIndexFile[] = "model.safetensors.index.json";

// Returns the safetensors files of a model folder: the single file, or the files in its index.
// NotFound if it has neither.
absl::StatusOr<std::vector<std::filesystem::path>> WeightFiles(const std::filesystem::path& folder);

// Reads each tensor once and records it. Tensors that were read enter the content hash; Remaining
// reports the others, so that no weight is silently ignored.
//
// A rank that reads part of a tensor does not have all bytes for its digest. Ranks that shard the
// same tensors therefore divide the digests among them (DigestShare), and each adds all of them.
//
// Several threads may read different tensors at once.
class HfTensors {
 public:
  // Opens all files of `folder`. Errors as WeightFiles and SafetensorsFile::Open. `progress`
  // receives the fraction of bytes done, on the thread that read last and never on two at once; a
  // tensor that is read in part counts whole.
  static absl::StatusOr<HfTensors> Open(const std::filesystem::path& folder,
                                        std::function<void(double)> progress);

  bool Has(const std::string& name) const;

  // Returns the stored dtype of `name`, or nullopt if the tensor is missing or was read.
  std::optional<at::ScalarType> DtypeOf(const std::string& name) const;

  // Reads tensor `name` to the CPU in its stored dtype. InvalidArgument if it is missing, has
  // another shape or is not of a supported float type.
  absl::StatusOr<at::Tensor> Read(const std::string& name, at::IntArrayRef shape);

  // Reads the positions `shard` of dimension `dim`, without its padding, and no other bytes.
  // `shape` is the shape of the whole tensor. Errors as Read.
  absl::StatusOr<at::Tensor> ReadPart(const std::string& name, at::IntArrayRef shape, int64_t dim,
                                      const Shard& shard);

  // Calls take(first, rows) for all rows of what ReadPart would return, some at a time: `rows` are
  // those from `first` on, in the stored dtype. Errors as Read.
  using TakeRows = std::function<void(int64_t first, const at::Tensor& rows)>;
  absl::Status StreamPart(const std::string& name, at::IntArrayRef shape, int64_t dim,
                          const Shard& shard, const TakeRows& take);

  // Reads `rows` (may be empty) of what ReadPart would return, for ranks that read different rows
  // of one tensor. Any number of calls, then EndRows. Errors as Read.
  absl::StatusOr<at::Tensor> ReadRows(const std::string& name, at::IntArrayRef shape, int64_t dim,
                                      const Shard& shard, const Shard& rows);
  void EndRows(const std::string& name);

  // Reads `name` into `out`, converting to its dtype and moving to its device.
  absl::Status ReadInto(const std::string& name, at::Tensor out);

  // Marks a tensor as deliberately unused.
  void Ignore(const std::string& name);

  // Returns the names not yet read or ignored, sorted.
  std::vector<std::string> Remaining() const;

  // Bytes of tensors read so far, without those that DigestShare reads.
  int64_t read_bytes() const;

  // Hex SHA-256 by name.
  using Digests = std::map<std::string, std::string>;

  // Returns the digests of this rank's share of the tensors that were read in part. Every one of
  // `num_ranks` ranks has about as many bytes. Reads these tensors whole, piece by piece, on all
  // threads. `progress` receives the fraction of their bytes done after each tensor.
  absl::StatusOr<Digests> DigestShare(int64_t index, int64_t num_ranks,
                                      const std::function<void(double)>& progress = nullptr) const;
  // Adds the result of DigestShare on any rank. FailedPrecondition if that rank has read other
  // tensors.
  absl::Status AddDigests(const Digests& digests);

  // Returns the hex SHA-256 of the headers: file names, and each tensor's place in its file.
  std::string HeadersDigest() const;

  // Returns the hex SHA-256 over the first row of each tensor. It differs between two revisions of
  // a model, which ranks would not notice while each hashes its share of another folder. DataLoss
  // as Read.
  absl::StatusOr<std::string> FirstRowsDigest() const;

  // Returns the hex SHA-256 over `prefix` and the names, dtypes, shapes and bytes of the tensors
  // read. All their digests must be present. It does not depend on the sharding or on the number of
  // files.
  std::string ContentHash(const std::string& prefix) const;

 private:
  HfTensors() = default;
  absl::Status AddFile(const std::filesystem::path& path);
  // Returns the index of the file with tensor `name`, after checking its shape and float dtype.
  absl::StatusOr<size_t> Find(const std::string& name, at::IntArrayRef shape) const;
  // Returns the tensors, with their files, that DigestShare digests on rank `index`.
  std::vector<std::pair<std::string, size_t>> ShareOf(int64_t index, int64_t num_ranks) const;
  // Reads the whole tensor `name` of a file for its digest.
  absl::StatusOr<std::string> DigestOf(const std::string& name, size_t file) const;
  // Records that `name` is done, whole if it has a digest; `num_bytes` are the bytes read since the
  // last count.
  void Took(const std::string& name, int64_t num_bytes, std::optional<std::string> digest);

  // The state that reading a tensor changes.
  struct Account {
    absl::Mutex mu;
    // Tensors not read yet -> index into files_.
    std::map<std::string, size_t> file_of ABSL_GUARDED_BY(mu);
    Digests digests ABSL_GUARDED_BY(mu);  // tensors read -> digest of dtype, shape, bytes
    // Tensors read in part -> index into files_.
    std::map<std::string, size_t> undigested ABSL_GUARDED_BY(mu);
    int64_t total_bytes ABSL_GUARDED_BY(mu) = 0;
    int64_t passed_bytes ABSL_GUARDED_BY(mu) = 0;  // of tensors that were read in part or whole
    int64_t read_bytes ABSL_GUARDED_BY(mu) = 0;
    std::function<void(double)> progress ABSL_GUARDED_BY(mu);
  };

  std::vector<SafetensorsFile> files_;
  std::unique_ptr<Account> account_ = std::make_unique<Account>();
};

}  // namespace lathe::worker
