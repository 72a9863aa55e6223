#include "libs/common/files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

}  // namespace

NewFile::~NewFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!is_complete_) unlink(path_.c_str());
}

absl::Status NewFile::Open() {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return fd_ >= 0 ? absl::OkStatus() : Error("cannot create ");
}

absl::Status NewFile::Write(std::string_view text) {
  buffer_.append(text);
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status NewFile::Sync() {
  RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return Error("cannot sync ");
  RETURN_IF_ERROR(SyncDirectory(std::filesystem::absolute(path_).parent_path()));
  is_complete_ = true;
  return absl::OkStatus();
}

absl::Status NewFile::Flush() {
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error("cannot write ");
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status NewFile::Error(const char* what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, path_.string()));
}

}  // namespace lathe
