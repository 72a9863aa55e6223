#include "services/worker/formats/safetensors/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

absl::Status IoError(const std::filesystem::path& path, const char* operation, int error) {
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == EEXIST) return absl::AlreadyExistsError(message);
  if (error == ENOENT) return absl::NotFoundError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<DurableFile> DurableFile::Create(const std::filesystem::path& path) {
  if (const int error = FailPointErrno("worker.save.file")) return IoError(path, "create", error);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd < 0) return IoError(path, "create", errno);
  return DurableFile(path, fd);
}

absl::StatusOr<DurableFile> DurableFile::Create(const std::filesystem::path& path,
                                                const std::vector<AgeRecipient>& recipients) {
  ASSIGN_OR_RETURN(DurableFile file, Create(path));
  if (!recipients.empty()) {
    ASSIGN_OR_RETURN(file.encryptor_, AgeEncryptor::Create(recipients));
  }
  return file;
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      hash_(std::move(other.hash_)),
      size_bytes_(other.size_bytes_),
      encryptor_(std::move(other.encryptor_)) {}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DurableFile::Append(const void* data, size_t num_bytes) {
  if (encryptor_ == nullptr) return Write(data, num_bytes);
  constexpr size_t kMaxPieceBytes = size_t{4} << 20;  // bounds the encrypted copy
  std::string_view rest(static_cast<const char*>(data), num_bytes);
  while (!rest.empty()) {
    const std::string sealed = encryptor_->Update(rest.substr(0, kMaxPieceBytes));
    RETURN_IF_ERROR(Write(sealed.data(), sealed.size()));
    rest.remove_prefix(std::min(rest.size(), kMaxPieceBytes));
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Write(const void* data, size_t num_bytes) {
  constexpr size_t kMaxWriteBytes = size_t{1} << 30;  // write(2) takes at most 2 GiB
  const int error = FailPointErrno("worker.save.write");
  if (error > 0) return IoError(path_, "write", error);
  hash_.Update(data, num_bytes);
  if (error == kFailPointSkip) return absl::OkStatus();
  const char* next = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t written = ::write(fd_, next, std::min(num_bytes, kMaxWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(path_, "write", errno);
    next += written;
    num_bytes -= static_cast<size_t>(written);
    size_bytes_ += written;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> DurableFile::Finish() {
  if (encryptor_ != nullptr) {
    const std::string end = encryptor_->Finish();
    RETURN_IF_ERROR(Write(end.data(), end.size()));
  }
  if (const int error = FailPointErrno("worker.save.fsync")) return IoError(path_, "fsync", error);
  if (fsync(fd_) != 0) return IoError(path_, "fsync", errno);
  if (close(std::exchange(fd_, -1)) != 0) return IoError(path_, "close", errno);
  return FileDigest{.size_bytes = size_bytes_, .sha256 = hash_.HexDigest()};
}

absl::StatusOr<FileDigest> WriteDurably(const std::filesystem::path& path,
                                        const std::string& content,
                                        const std::vector<AgeRecipient>& recipients) {
  ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, recipients));
  RETURN_IF_ERROR(file.Append(content.data(), content.size()));
  return file.Finish();
}

}  // namespace lathe::worker
