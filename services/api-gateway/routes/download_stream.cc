#include "services/api-gateway/routes/download_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

// A member that is in no folder: push-hf of SDKs until 0.35 looks for it.
constexpr char kCompleteMark[] = "checkpoint_complete";

}  // namespace

// An open descriptor.
class DownloadStream::File {
 public:
  // NotFound unless it is a plain file of that size.
  static absl::StatusOr<std::shared_ptr<File>> Open(const std::filesystem::path& dir,
                                                    const TarMember& member) {
    const std::string path = dir / member.name;
    auto file = std::make_shared<File>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info = {};
    if (file->descriptor_ < 0 || fstat(file->descriptor_, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size != member.num_bytes) {
      return absl::NotFoundError(
          absl::StrFormat("file %s of the checkpoint is missing or was changed", member.name));
    }
    file->modified_at_ = absl::FromTimeT(info.st_mtime);
    posix_fadvise(file->descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
    return file;
  }

  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  absl::Time modified_at() const { return modified_at_; }

 private:
  const int descriptor_;
  absl::Time modified_at_;
};

absl::StatusOr<std::unique_ptr<DownloadStream>> DownloadStream::OpenTar(
    const std::filesystem::path& dir, std::vector<TarMember> members) {
  const bool has_mark = std::any_of(members.begin(), members.end(), [](const auto& member) {
    return member.name == kCompleteMark;
  });
  auto stream = std::make_unique<DownloadStream>();
  for (const TarMember& member : members) {
    RETURN_IF_ERROR(TarHeader(member, absl::UnixEpoch()).status());
    ASSIGN_OR_RETURN(std::shared_ptr<File> file, File::Open(dir, member));
    ASSIGN_OR_RETURN(std::string header, TarHeader(member, file->modified_at()));
    stream->AddBytes(std::move(header));
    stream->AddFile(std::move(file), member.num_bytes);
    stream->AddBytes(TarPadding(member.num_bytes));
  }
  if (!has_mark) {
    ASSIGN_OR_RETURN(std::string header, TarHeader({kCompleteMark, 0}, absl::UnixEpoch()));
    stream->AddBytes(std::move(header));
  }
  stream->AddBytes(TarEnd());
  stream->Select(0, stream->num_bytes_);
  return stream;
}

absl::StatusOr<std::unique_ptr<DownloadStream>> DownloadStream::OpenPlain(
    const std::filesystem::path& dir, const TarMember& member) {
  RETURN_IF_ERROR(TarHeader(member, absl::UnixEpoch()).status());
  auto stream = std::make_unique<DownloadStream>();
  ASSIGN_OR_RETURN(std::shared_ptr<File> file, File::Open(dir, member));
  stream->AddFile(std::move(file), member.num_bytes);
  stream->Select(0, stream->num_bytes_);
  return stream;
}

void DownloadStream::AddBytes(std::string bytes) {
  num_bytes_ += static_cast<int64_t>(bytes.size());
  // Neighbours that were made here are sent together.
  if (parts_.empty() || parts_.back().file != nullptr) parts_.emplace_back();
  parts_.back().bytes += bytes;
  parts_.back().num_bytes = static_cast<int64_t>(parts_.back().bytes.size());
}

void DownloadStream::AddFile(std::shared_ptr<File> file, int64_t num_bytes) {
  num_bytes_ += num_bytes;
  parts_.push_back({.bytes = {}, .file = std::move(file), .num_bytes = num_bytes});
}

void DownloadStream::Select(int64_t begin, int64_t end) {
  position_ = begin;
  end_ = end;
}

absl::StatusOr<std::string> DownloadStream::Next() {
  int64_t offset = position_;
  for (const Part& part : parts_) {
    if (position_ == end_) break;
    if (offset >= part.num_bytes) {
      offset -= part.num_bytes;
      continue;
    }
    const int64_t size = std::min({kPieceBytes, part.num_bytes - offset, end_ - position_});
    ASSIGN_OR_RETURN(std::string piece, Read(part, offset, size));
    position_ += static_cast<int64_t>(piece.size());
    return piece;
  }
  return std::string();
}

absl::StatusOr<std::string> DownloadStream::Read(const Part& part, int64_t offset,
                                                 int64_t size) const {
  if (part.file == nullptr) return part.bytes.substr(offset, size);
  std::string piece(size, '\0');
  const ssize_t num_read = pread(part.file->descriptor(), piece.data(), piece.size(), offset);
  if (num_read <= 0) {
    return absl::DataLossError(
        absl::StrFormat("a checkpoint file ended at byte %d of %d", offset, part.num_bytes));
  }
  piece.resize(num_read);
  return piece;
}

}  // namespace lathe::gateway
