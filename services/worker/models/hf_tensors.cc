#include "services/worker/models/hf_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/sha256.h"
#include "services/worker/models/json_file.h"

namespace lathe::worker {
namespace {

// Returns the file names in an index, each once.
absl::StatusOr<std::set<std::string>> ShardNames(const std::filesystem::path& index_path) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonObject(index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path.string(), ": no weight_map"));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: weight_map of %s is not a file name", index_path.string(), tensor));
    }
    shards.insert(shard.get<std::string>());
  }
  return shards;
}

// Starts a tensor's digest with dtype and shape; the caller adds the bytes.
Sha256 BeginDigest(const SafetensorsFile::Entry& entry) {
  Sha256 digest;
  digest.Update(
      absl::StrCat(SafetensorsDtypeName(entry.dtype), "[", absl::StrJoin(entry.shape, ","), "]"));
  return digest;
}

}  // namespace

absl::StatusOr<std::vector<std::filesystem::path>> WeightFiles(
    const std::filesystem::path& folder) {
  const std::filesystem::path single = folder / kSingleWeightFile;
  const std::filesystem::path index = folder / kWeightIndexFile;
  if (std::filesystem::exists(single)) return std::vector{single};
  if (!std::filesystem::exists(index)) {
    return absl::NotFoundError(absl::StrCat(folder.string(), " holds neither ", kSingleWeightFile,
                                            " nor ", kWeightIndexFile));
  }
  ASSIGN_OR_RETURN(const std::set<std::string> shards, ShardNames(index));
  std::vector<std::filesystem::path> files;
  for (const std::string& shard : shards) files.push_back(folder / shard);
  return files;
}

absl::StatusOr<HfTensors> HfTensors::Open(const std::filesystem::path& folder,
                                          std::function<void(double)> progress) {
  HfTensors tensors;
  tensors.progress_ = std::move(progress);
  ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> files, WeightFiles(folder));
  for (const std::filesystem::path& file : files) RETURN_IF_ERROR(tensors.AddFile(file));
  return tensors;
}

absl::Status HfTensors::AddFile(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const std::string& name : file.names()) {
    if (!file_of_.emplace(name, files_.size()).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: tensor %s is in another shard too", path.string(), name));
    }
    total_bytes_ += file.Find(name)->num_bytes;
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

std::optional<at::ScalarType> HfTensors::DtypeOf(const std::string& name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) return std::nullopt;
  return files_[it->second].Find(name)->dtype;
}

absl::StatusOr<size_t> HfTensors::Find(const std::string& name, at::IntArrayRef shape) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
  }
  const SafetensorsFile::Entry& entry = *files_[it->second].Find(name);
  if (at::IntArrayRef(entry.shape) != shape) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor %s has shape [%s], the config says [%s]", name,
                        absl::StrJoin(entry.shape, ", "), absl::StrJoin(shape, ", ")));
  }
  if (entry.dtype != at::kFloat && entry.dtype != at::kHalf && entry.dtype != at::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor %s has dtype %s, supported are F32, F16, BF16", name, c10::toString(entry.dtype)));
  }
  return it->second;
}

void HfTensors::Took(const std::string& name, int64_t num_bytes) {
  const auto it = file_of_.find(name);
  passed_bytes_ += files_[it->second].Find(name)->num_bytes;
  read_bytes_ += num_bytes;
  file_of_.erase(it);
  if (progress_) progress_(static_cast<double>(passed_bytes_) / static_cast<double>(total_bytes_));
}

absl::StatusOr<at::Tensor> HfTensors::Read(const std::string& name, at::IntArrayRef shape) {
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  ASSIGN_OR_RETURN(at::Tensor tensor, files_[file].Read(name));
  Sha256 digest = BeginDigest(*files_[file].Find(name));
  digest.Update(tensor.const_data_ptr(), tensor.nbytes());
  digests_[name] = digest.HexDigest();
  Took(name, static_cast<int64_t>(tensor.nbytes()));
  return tensor;
}

absl::StatusOr<at::Tensor> HfTensors::ReadPart(const std::string& name, at::IntArrayRef shape,
                                               int64_t dim, const Shard& shard) {
  if (shard.size == shape[dim]) return Read(name, shape);
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  ASSIGN_OR_RETURN(
      at::Tensor tensor,
      files_[file].ReadSlice(name, {.dim = dim, .begin = shard.begin, .size = shard.size}));
  undigested_[name] = file;
  Took(name, static_cast<int64_t>(tensor.nbytes()));
  return tensor;
}

absl::StatusOr<at::Tensor> HfTensors::ReadRows(const std::string& name, at::IntArrayRef shape,
                                               int64_t dim, const Shard& shard, const Shard& rows) {
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  std::vector<SafetensorsFile::Slice> slices = {{.dim = 0, .begin = rows.begin, .size = rows.size}};
  if (dim == 0) {
    slices[0].begin += shard.begin;
  } else {
    slices.push_back({.dim = dim, .begin = shard.begin, .size = shard.size});
  }
  ASSIGN_OR_RETURN(at::Tensor tensor, files_[file].ReadSlices(name, slices));
  read_bytes_ += static_cast<int64_t>(tensor.nbytes());
  return tensor;
}

void HfTensors::EndRows(const std::string& name) {
  undigested_[name] = file_of_.at(name);
  Took(name, /*num_bytes=*/0);
}

absl::Status HfTensors::ReadInto(const std::string& name, at::Tensor out) {
  ASSIGN_OR_RETURN(const at::Tensor tensor, Read(name, out.sizes()));
  out.copy_(tensor);
  return absl::OkStatus();
}

std::vector<std::string> HfTensors::Remaining() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

absl::StatusOr<HfTensors::Digests> HfTensors::DigestShare(
    int64_t index, int64_t num_ranks, const std::function<void(double)>& progress) const {
  std::vector<int64_t> dealt_bytes(num_ranks);
  std::vector<std::pair<std::string, size_t>> own;
  for (const auto& [name, file] : undigested_) {
    const auto least = std::min_element(dealt_bytes.begin(), dealt_bytes.end());
    *least += files_[file].Find(name)->num_bytes;
    if (least - dealt_bytes.begin() == index) own.emplace_back(name, file);
  }
  Digests digests;
  int64_t done_bytes = 0;
  for (const auto& [name, file] : own) {
    const SafetensorsFile::Entry& entry = *files_[file].Find(name);
    Sha256 digest = BeginDigest(entry);
    RETURN_IF_ERROR(files_[file].Stream(
        name, [&](const void* data, int64_t num_bytes) { digest.Update(data, num_bytes); }));
    digests[name] = digest.HexDigest();
    done_bytes += entry.num_bytes;
    if (progress) {
      progress(static_cast<double>(done_bytes) / static_cast<double>(dealt_bytes[index]));
    }
  }
  return digests;
}

absl::Status HfTensors::AddDigests(const Digests& digests) {
  for (const auto& [name, digest] : digests) {
    if (!undigested_.contains(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat("another rank has read a part of tensor ", name, ", this one has not"));
    }
    digests_[name] = digest;
  }
  return absl::OkStatus();
}

std::string HfTensors::HeadersDigest() const {
  Sha256 digest;
  for (const SafetensorsFile& file : files_) {
    digest.Update(absl::StrCat("\n", file.path().filename().string()));
    for (const std::string& name : file.names()) {
      const SafetensorsFile::Entry& entry = *file.Find(name);
      digest.Update(absl::StrCat("\n", name, " ", SafetensorsDtypeName(entry.dtype), "[",
                                 absl::StrJoin(entry.shape, ","), "] ", entry.offset));
    }
  }
  return digest.HexDigest();
}

absl::StatusOr<std::string> HfTensors::FirstRowsDigest() const {
  Sha256 digest;
  for (const SafetensorsFile& file : files_) {
    for (const std::string& name : file.names()) {
      if (file.Find(name)->num_bytes == 0 || file.Find(name)->shape.empty()) continue;
      ASSIGN_OR_RETURN(const at::Tensor row,
                       file.ReadSlice(name, {.dim = 0, .begin = 0, .size = 1}));
      digest.Update(row.data_ptr(), static_cast<int64_t>(row.nbytes()));
    }
  }
  return digest.HexDigest();
}

std::string HfTensors::ContentHash(const std::string& prefix) const {
  for (const auto& [name, file] : undigested_) {
    TORCH_CHECK(digests_.contains(name), "no digest of ", name);
  }
  Sha256 digest;
  digest.Update(prefix);
  for (const auto& [name, tensor_digest] : digests_) {
    digest.Update(absl::StrCat("\n", name, " ", tensor_digest));
  }
  return digest.HexDigest();
}

}  // namespace lathe::worker
