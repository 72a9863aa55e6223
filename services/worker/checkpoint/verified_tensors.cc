#include "services/worker/checkpoint/verified_tensors.h"

#include <system_error>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/status_macros.h"
#include "services/worker/checkpoint/safetensors.h"
#include "services/worker/checkpoint/sha256.h"

namespace lathe::worker {
namespace {

absl::Status Damaged(const std::filesystem::path& file, const std::string& what) {
  return absl::DataLossError(absl::StrFormat("%s: %s", file.string(), what));
}

absl::Status CheckSize(const std::filesystem::path& path, int64_t wanted) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return Damaged(path, error.message());
  if (static_cast<int64_t>(size) == wanted) return absl::OkStatus();
  return Damaged(path, absl::StrFormat("size is %d bytes, manifest says %d", size, wanted));
}

absl::StatusOr<at::Tensor> ReadChecked(const SafetensorsFile& file, const ManifestTensor& wanted) {
  const SafetensorsFile::Entry* entry = file.Find(wanted.name);
  if (entry == nullptr) {
    return Damaged(file.path(), absl::StrFormat("tensor %s is missing", wanted.name));
  }
  const std::string dtype = SafetensorsDtypeName(entry->dtype);
  if (dtype != wanted.dtype || entry->shape != wanted.shape) {
    return Damaged(file.path(),
                   absl::StrFormat("tensor %s is %s [%s], manifest says %s [%s]", wanted.name,
                                   dtype, absl::StrJoin(entry->shape, ","), wanted.dtype,
                                   absl::StrJoin(wanted.shape, ",")));
  }
  ASSIGN_OR_RETURN(at::Tensor tensor, file.Read(wanted.name));
  if (TensorSha256(tensor) != wanted.sha256) {
    return Damaged(file.path(), absl::StrFormat("tensor %s: checksum mismatch", wanted.name));
  }
  return tensor;
}

}  // namespace

std::string TensorSha256(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.to(at::kCPU).contiguous();
  Sha256 hash;
  hash.Update(bytes.data_ptr(), bytes.nbytes());
  return hash.HexDigest();
}

absl::StatusOr<VerifiedTensors> VerifiedTensors::Read(const std::filesystem::path& dir,
                                                      const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    RETURN_IF_ERROR(CheckSize(dir / file.name, file.size_bytes));
  }
  VerifiedTensors verified;
  std::map<std::string, SafetensorsFile> open_files;
  for (const ManifestTensor& wanted : manifest.tensors) {
    auto file = open_files.find(wanted.file);
    if (file == open_files.end()) {
      auto opened = SafetensorsFile::Open(dir / wanted.file);
      if (!opened.ok()) return absl::DataLossError(opened.status().message());
      file = open_files.emplace(wanted.file, *std::move(opened)).first;
    }
    ASSIGN_OR_RETURN(verified.tensors_[std::pair(wanted.file, wanted.name)],
                     ReadChecked(file->second, wanted));
  }
  // Tensors first, so that a damaged one is named; this finds damage everywhere else.
  for (const ManifestFile& file : manifest.files) {
    ASSIGN_OR_RETURN(const FileDigest digest, DigestFile(dir / file.name));
    if (digest.sha256 != file.sha256) return Damaged(dir / file.name, "checksum mismatch");
  }
  return verified;
}

absl::Status VerifiedTensors::CopyTo(const std::string& file, const std::string& name,
                                     at::Tensor into) const {
  const auto found = tensors_.find(std::pair(file, name));
  if (found == tensors_.end() || found->second.sizes() != into.sizes()) {
    return Damaged(file, absl::StrFormat("tensor %s is missing or not [%s]", name,
                                         absl::StrJoin(into.sizes(), ",")));
  }
  into.copy_(found->second);
  return absl::OkStatus();
}

}  // namespace lathe::worker
