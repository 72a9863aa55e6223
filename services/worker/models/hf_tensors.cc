#include "services/worker/models/hf_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/sha256.h"
#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/layers/cpu_rows.h"
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

// Bytes that are read, hashed and stored together.
constexpr int64_t kPieceBytes = int64_t{512} << 10;

// Returns the number of rows of a piece: whole panels, at least one.
int64_t PieceRows(int64_t row_bytes) {
  return std::max<int64_t>(1, kPieceBytes / (row_bytes * kMatmulPanel)) * kMatmulPanel;
}

// Returns the slices of a tensor that hold `rows` of its part `shard` of dimension `dim`.
std::vector<SafetensorsFile::Slice> SlicesOf(int64_t dim, const Shard& shard, const Shard& rows) {
  std::vector<SafetensorsFile::Slice> slices = {{.dim = 0, .begin = rows.begin, .size = rows.size}};
  if (dim == 0) {
    slices[0].begin += shard.begin;
  } else {
    slices.push_back({.dim = dim, .begin = shard.begin, .size = shard.size});
  }
  return slices;
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
  ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> files, WeightFiles(folder));
  for (const std::filesystem::path& file : files) RETURN_IF_ERROR(tensors.AddFile(file));
  absl::MutexLock lock(&tensors.account_->mu);
  tensors.account_->progress = std::move(progress);
  return tensors;
}

absl::Status HfTensors::AddFile(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  for (const std::string& name : file.names()) {
    if (!account.file_of.emplace(name, files_.size()).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: tensor %s is in another shard too", path.string(), name));
    }
    account.total_bytes += file.Find(name)->num_bytes;
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

bool HfTensors::Has(const std::string& name) const { return DtypeOf(name).has_value(); }

std::optional<at::ScalarType> HfTensors::DtypeOf(const std::string& name) const {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  const auto it = account.file_of.find(name);
  if (it == account.file_of.end()) return std::nullopt;
  return files_[it->second].Find(name)->dtype;
}

void HfTensors::Ignore(const std::string& name) {
  absl::MutexLock lock(&account_->mu);
  account_->file_of.erase(name);
}

int64_t HfTensors::read_bytes() const {
  absl::MutexLock lock(&account_->mu);
  return account_->read_bytes;
}

absl::StatusOr<size_t> HfTensors::Find(const std::string& name, at::IntArrayRef shape) const {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  const auto it = account.file_of.find(name);
  if (it == account.file_of.end()) {
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

void HfTensors::Took(const std::string& name, int64_t num_bytes,
                     std::optional<std::string> digest) {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  const auto it = account.file_of.find(name);
  account.passed_bytes += files_[it->second].Find(name)->num_bytes;
  account.read_bytes += num_bytes;
  if (digest.has_value()) {
    account.digests[name] = *std::move(digest);
  } else {
    account.undigested[name] = it->second;
  }
  account.file_of.erase(it);
  if (!account.progress) return;
  account.progress(static_cast<double>(account.passed_bytes) /
                   static_cast<double>(account.total_bytes));
}

absl::StatusOr<at::Tensor> HfTensors::Read(const std::string& name, at::IntArrayRef shape) {
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  ASSIGN_OR_RETURN(at::Tensor tensor, files_[file].Read(name));
  Sha256 digest = BeginDigest(*files_[file].Find(name));
  digest.Update(tensor.const_data_ptr(), tensor.nbytes());
  Took(name, static_cast<int64_t>(tensor.nbytes()), digest.HexDigest());
  return tensor;
}

absl::StatusOr<at::Tensor> HfTensors::ReadPart(const std::string& name, at::IntArrayRef shape,
                                               int64_t dim, const Shard& shard) {
  if (shard.size == shape[dim]) return Read(name, shape);
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  ASSIGN_OR_RETURN(
      at::Tensor tensor,
      files_[file].ReadSlice(name, {.dim = dim, .begin = shard.begin, .size = shard.size}));
  Took(name, static_cast<int64_t>(tensor.nbytes()), /*digest=*/std::nullopt);
  return tensor;
}

// Reads pieces that a core's cache holds: memory that is new for every tensor costs a page fault
// for each 4 KiB, and the digest reads what the file's read has just written.
absl::Status HfTensors::StreamPart(const std::string& name, at::IntArrayRef shape, int64_t dim,
                                   const Shard& shard, const TakeRows& take) {
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  const SafetensorsFile::Entry& entry = *files_[file].Find(name);
  std::optional<Sha256> digest;
  if (shard.size == shape[dim]) digest = BeginDigest(entry);
  const int64_t num_rows = dim == 0 ? shard.size : shape[0];
  const int64_t piece_rows = PieceRows(entry.num_bytes / shape[0]);
  int64_t num_bytes = 0;
  for (int64_t row = 0; row < num_rows; row += piece_rows) {
    const Shard rows = {.begin = row, .size = std::min(piece_rows, num_rows - row)};
    ASSIGN_OR_RETURN(const at::Tensor piece,
                     files_[file].ReadSlices(name, SlicesOf(dim, shard, rows)));
    if (digest.has_value()) digest->Update(piece.const_data_ptr(), piece.nbytes());
    num_bytes += static_cast<int64_t>(piece.nbytes());
    take(row, piece);
  }
  Took(name, num_bytes,
       digest.has_value() ? std::optional(digest->HexDigest()) : std::optional<std::string>());
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> HfTensors::ReadRows(const std::string& name, at::IntArrayRef shape,
                                               int64_t dim, const Shard& shard, const Shard& rows) {
  ASSIGN_OR_RETURN(const size_t file, Find(name, shape));
  ASSIGN_OR_RETURN(at::Tensor tensor, files_[file].ReadSlices(name, SlicesOf(dim, shard, rows)));
  absl::MutexLock lock(&account_->mu);
  account_->read_bytes += static_cast<int64_t>(tensor.nbytes());
  return tensor;
}

void HfTensors::EndRows(const std::string& name) {
  Took(name, /*num_bytes=*/0, /*digest=*/std::nullopt);
}

absl::Status HfTensors::ReadInto(const std::string& name, at::Tensor out) {
  ASSIGN_OR_RETURN(const at::Tensor tensor, Read(name, out.sizes()));
  out.copy_(tensor);
  return absl::OkStatus();
}

std::vector<std::string> HfTensors::Remaining() const {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  std::vector<std::string> names;
  for (const auto& [name, file] : account.file_of) names.push_back(name);
  return names;
}

std::vector<std::pair<std::string, size_t>> HfTensors::ShareOf(int64_t index,
                                                               int64_t num_ranks) const {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  std::vector<int64_t> dealt_bytes(num_ranks);
  std::vector<std::pair<std::string, size_t>> own;
  for (const auto& [name, file] : account.undigested) {
    const auto least = std::min_element(dealt_bytes.begin(), dealt_bytes.end());
    *least += files_[file].Find(name)->num_bytes;
    if (least - dealt_bytes.begin() == index) own.emplace_back(name, file);
  }
  return own;
}

absl::StatusOr<std::string> HfTensors::DigestOf(const std::string& name, size_t file) const {
  Sha256 digest = BeginDigest(*files_[file].Find(name));
  RETURN_IF_ERROR(files_[file].Stream(
      name, [&](const void* data, int64_t num_bytes) { digest.Update(data, num_bytes); }));
  return digest.HexDigest();
}

absl::StatusOr<HfTensors::Digests> HfTensors::DigestShare(
    int64_t index, int64_t num_ranks, const std::function<void(double)>& progress) const {
  const std::vector<std::pair<std::string, size_t>> own = ShareOf(index, num_ranks);
  int64_t own_bytes = 0;
  for (const auto& [name, file] : own) own_bytes += files_[file].Find(name)->num_bytes;

  std::vector<absl::StatusOr<std::string>> results(own.size());
  absl::Mutex mu;
  int64_t done_bytes = 0;  // guarded by mu
  ComputeTeam().Run(static_cast<int64_t>(own.size()), [&](int64_t i, int64_t /*thread*/) {
    const auto& [name, file] = own[i];
    results[i] = DigestOf(name, file);
    absl::MutexLock lock(&mu);
    done_bytes += files_[file].Find(name)->num_bytes;
    if (progress) progress(static_cast<double>(done_bytes) / static_cast<double>(own_bytes));
  });
  Digests digests;
  for (size_t i = 0; i < own.size(); ++i) {
    ASSIGN_OR_RETURN(digests[own[i].first], std::move(results[i]));
  }
  return digests;
}

absl::Status HfTensors::AddDigests(const Digests& digests) {
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  for (const auto& [name, digest] : digests) {
    if (!account.undigested.contains(name)) {
      return absl::FailedPreconditionError(
          absl::StrCat("another rank has read a part of tensor ", name, ", this one has not"));
    }
    account.digests[name] = digest;
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
  Account& account = *account_;
  absl::MutexLock lock(&account.mu);
  for (const auto& [name, file] : account.undigested) {
    TORCH_CHECK(account.digests.contains(name), "no digest of ", name);
  }
  Sha256 digest;
  digest.Update(prefix);
  for (const auto& [name, tensor_digest] : account.digests) {
    digest.Update(absl::StrCat("\n", name, " ", tensor_digest));
  }
  return digest.HexDigest();
}

}  // namespace lathe::worker
