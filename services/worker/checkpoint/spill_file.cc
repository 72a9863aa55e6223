#include "services/worker/checkpoint/spill_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/status_macros.h"
#include "services/worker/formats/safetensors/sha256.h"

namespace lathe::worker {
namespace {

constexpr int64_t kMaxTransferBytes = int64_t{1} << 30;

absl::Status FromErrno(const std::filesystem::path& path, const char* operation) {
  const int error = errno;
  const std::string message =
      absl::StrFormat("%s: %s: %s", path.string(), operation, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

std::string Sha256Of(const void* data, int64_t num_bytes) {
  Sha256 hash;
  hash.Update(data, static_cast<size_t>(num_bytes));
  return hash.HexDigest();
}

}  // namespace

struct SpillFile::Space {
  explicit Space(std::filesystem::path spill_dir) : dir(std::move(spill_dir)) {}
  ~Space() {
    if (fd >= 0) close(fd);
  }

  absl::Status OpenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (fd >= 0) return absl::OkStatus();
    std::error_code ignored;  // mkostemp reports it
    std::filesystem::create_directories(dir, ignored);
    std::string name = (dir / "spill-XXXXXX").string();
    const int opened = mkostemp(name.data(), O_CLOEXEC);
    if (opened < 0) return FromErrno(dir, "create");
    unlink(name.c_str());
    fd = opened;
    return absl::OkStatus();
  }

  // Returns the first hole that is large enough, otherwise the end of the file.
  absl::StatusOr<int64_t> Take(int64_t num_bytes) {
    absl::MutexLock lock(&mu);
    RETURN_IF_ERROR(OpenLocked());
    for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
      const auto [offset, length] = *hole;
      if (length < num_bytes) continue;
      holes.erase(hole);
      if (length > num_bytes) holes[offset + num_bytes] = length - num_bytes;
      return offset;
    }
    return std::exchange(end, end + num_bytes);
  }

  void GiveBack(int64_t offset, int64_t num_bytes) {
    absl::MutexLock lock(&mu);
    auto [hole, is_new] = holes.emplace(offset, num_bytes);
    if (const auto next = std::next(hole);
        next != holes.end() && next->first == offset + num_bytes) {
      hole->second += next->second;
      holes.erase(next);
    }
    if (hole == holes.begin()) return;
    const auto previous = std::prev(hole);
    if (previous->first + previous->second != offset) return;
    previous->second += hole->second;
    holes.erase(hole);
  }

  const std::filesystem::path dir;
  mutable absl::Mutex mu;
  int fd = -1;  // set once, under `mu`, before the first extent
  int64_t end ABSL_GUARDED_BY(mu) = 0;
  std::map<int64_t, int64_t> holes ABSL_GUARDED_BY(mu);  // lengths by offset, never adjacent
};

SpillFile::Extent::Extent(std::shared_ptr<Space> space, int64_t offset, int64_t num_bytes)
    : space_(std::move(space)), offset_(offset), num_bytes_(num_bytes) {}

SpillFile::Extent::~Extent() {
  if (num_bytes_ > 0) space_->GiveBack(offset_, num_bytes_);
}

absl::Status SpillFile::Extent::Read(void* data) const {
  char* const bytes = static_cast<char*>(data);
  for (int64_t done = 0; done < num_bytes_;) {
    const auto size = static_cast<size_t>(std::min(num_bytes_ - done, kMaxTransferBytes));
    const ssize_t got = pread(space_->fd, bytes + done, size, offset_ + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromErrno(space_->dir, "read of spilled memory");
    if (got == 0) break;
    done += got;
  }
  if (Sha256Of(data, num_bytes_) == sha256_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s: spilled memory: checksum mismatch", space_->dir.string()));
}

SpillFile::SpillFile(std::filesystem::path dir) : space_(std::make_shared<Space>(std::move(dir))) {}

absl::StatusOr<std::shared_ptr<const SpillFile::Extent>> SpillFile::Write(const void* data,
                                                                          int64_t num_bytes) {
  ASSIGN_OR_RETURN(const int64_t offset, space_->Take(num_bytes));
  auto extent = std::make_shared<Extent>(space_, offset, num_bytes);
  const char* const bytes = static_cast<const char*>(data);
  for (int64_t done = 0; done < num_bytes;) {
    const auto size = static_cast<size_t>(std::min(num_bytes - done, kMaxTransferBytes));
    const ssize_t written = pwrite(space_->fd, bytes + done, size, offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FromErrno(space_->dir, "write of spilled memory");
    done += written;
  }
  extent->sha256_ = Sha256Of(data, num_bytes);
  return extent;
}

int64_t SpillFile::size_bytes() const {
  absl::MutexLock lock(&space_->mu);
  return space_->end;
}

}  // namespace lathe::worker
