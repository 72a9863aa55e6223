#include "services/worker/models/hf_tensors.h"

#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/sha256.h"
#include "services/worker/models/json_file.h"

namespace lathe::worker {
namespace {

// File names of the shards an index lists, each once.
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

absl::StatusOr<at::Tensor> HfTensors::Read(const std::string& name, at::IntArrayRef shape) {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
  }
  ASSIGN_OR_RETURN(at::Tensor tensor, files_[it->second].Read(name));
  if (tensor.sizes() != shape) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor %s has shape [%s], the config says [%s]", name,
                        absl::StrJoin(tensor.sizes(), ", "), absl::StrJoin(shape, ", ")));
  }
  const at::ScalarType dtype = tensor.scalar_type();
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor %s has dtype %s, supported are F32, F16, BF16", name, c10::toString(dtype)));
  }
  Sha256 digest;
  digest.Update(
      absl::StrCat(SafetensorsDtypeName(dtype), "[", absl::StrJoin(tensor.sizes(), ","), "]"));
  digest.Update(tensor.const_data_ptr(), tensor.nbytes());
  digests_[name] = digest.HexDigest();
  file_of_.erase(it);
  read_bytes_ += static_cast<int64_t>(tensor.nbytes());
  if (progress_) progress_(static_cast<double>(read_bytes_) / static_cast<double>(total_bytes_));
  return tensor;
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

std::string HfTensors::ContentHash(const std::string& prefix) const {
  Sha256 digest;
  digest.Update(prefix);
  for (const auto& [name, tensor_digest] : digests_) {
    digest.Update(absl::StrCat("\n", name, " ", tensor_digest));
  }
  return digest.HexDigest();
}

}  // namespace lathe::worker
