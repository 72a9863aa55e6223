#include "services/api-gateway/routes/download_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

// One request to a store takes some hundredths of a second, so a whole file comes in large pieces.
// Most ranges are small.
constexpr int64_t kLeastFetched = 64 << 10;
constexpr int64_t kMostFetched = 8 << 20;

absl::Status Changed(const TarMember& member) {
  return absl::NotFoundError(
      absl::StrFormat("file %s of the checkpoint is missing or was changed", member.name));
}

// Owns an open descriptor.
class DiskFile : public DownloadFile {
 public:
  static absl::StatusOr<std::shared_ptr<DownloadFile>> Open(const std::filesystem::path& dir,
                                                            const TarMember& member) {
    const std::string path = dir / member.name;
    auto file = std::make_shared<DiskFile>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info = {};
    if (file->descriptor_ < 0 || fstat(file->descriptor_, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size != member.num_bytes) {
      return Changed(member);
    }
    file->modified_at_ = absl::FromTimeT(info.st_mtime);
    posix_fadvise(file->descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
    return file;
  }

  explicit DiskFile(int descriptor) : descriptor_(descriptor) {}
  ~DiskFile() override {
    if (descriptor_ >= 0) close(descriptor_);
  }
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  absl::StatusOr<std::string> Read(int64_t offset, int64_t size) override {
    std::string piece(size, '\0');
    const ssize_t num_read = pread(descriptor_, piece.data(), piece.size(), offset);
    if (num_read <= 0) {
      return absl::DataLossError(absl::StrFormat("a checkpoint file ended at byte %d", offset));
    }
    piece.resize(num_read);
    return piece;
  }
  absl::Time modified_at() const override { return modified_at_; }

 private:
  const int descriptor_;
  absl::Time modified_at_;
};

// An object, of which a range is fetched ahead.
class ObjectFile : public DownloadFile {
 public:
  ObjectFile(std::shared_ptr<CheckpointObjects> objects, std::string dir, std::string name,
             const ObjectInfo& info)
      : objects_(std::move(objects)),
        dir_(std::move(dir)),
        name_(std::move(name)),
        num_bytes_(info.size_bytes),
        modified_at_(info.modified_at) {}

  absl::StatusOr<std::string> Read(int64_t offset, int64_t size) override {
    if (offset < begin_ || offset >= end_) {
      const bool goes_on = offset == end_ && end_ > 0;
      num_ahead_ = goes_on ? std::min(2 * num_ahead_, kMostFetched) : kLeastFetched;
      const int64_t wanted = std::min(std::max(size, num_ahead_), num_bytes_ - offset);
      ASSIGN_OR_RETURN(ahead_, objects_->Read(dir_, name_, offset, wanted));
      begin_ = offset;
      end_ = offset + wanted;
    }
    std::string piece = ahead_.substr(offset - begin_, size);
    if (offset + static_cast<int64_t>(piece.size()) == end_) {
      // Delivered bytes take no memory while the client is slow.
      ahead_ = std::string();
      begin_ = end_;
    }
    return piece;
  }
  absl::Time modified_at() const override { return modified_at_; }

 private:
  const std::shared_ptr<CheckpointObjects> objects_;
  const std::string dir_;
  const std::string name_;
  const int64_t num_bytes_;
  const absl::Time modified_at_;
  std::string ahead_;
  int64_t begin_ = 0;  // place of ahead_ in the object, up to end_
  int64_t end_ = 0;
  int64_t num_ahead_ = kLeastFetched;
};

}  // namespace

OpenDownloadFile FilesIn(std::filesystem::path folder) {
  return [folder = std::move(folder)](const TarMember& member) {
    return DiskFile::Open(folder, member);
  };
}

OpenDownloadFile ObjectsOf(std::shared_ptr<CheckpointObjects> objects, std::string dir) {
  return [objects = std::move(objects), dir = std::move(dir)](
             const TarMember& member) -> absl::StatusOr<std::shared_ptr<DownloadFile>> {
    const absl::StatusOr<ObjectInfo> info = objects->Describe(dir, member.name);
    if (absl::IsNotFound(info.status())) return Changed(member);
    RETURN_IF_ERROR(info.status());
    if (info->size_bytes != member.num_bytes) return Changed(member);
    return std::make_shared<ObjectFile>(objects, dir, member.name, *info);
  };
}

}  // namespace lathe::gateway
