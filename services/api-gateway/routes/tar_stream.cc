#include "services/api-gateway/routes/tar_stream.h"

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

// An open descriptor, or none for an empty member made by us.
class TarStream::File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Unset when it is no plain file.
  absl::StatusOr<struct stat> Stat() const {
    struct stat info = {};
    if (descriptor_ < 0 || fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
      return absl::NotFoundError("not a plain file");
    }
    return info;
  }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::StatusOr<std::unique_ptr<TarStream>> TarStream::Open(const std::filesystem::path& dir,
                                                           std::vector<TarMember> members) {
  const bool has_mark = std::any_of(members.begin(), members.end(), [](const auto& member) {
    return member.name == kCompleteMark;
  });
  std::unique_ptr<TarStream> stream(new TarStream(std::move(members)));
  for (const TarMember& member : stream->members_) {
    RETURN_IF_ERROR(TarHeader(member, absl::UnixEpoch()).status());
    const std::string path = dir / member.name;
    stream->files_.push_back(
        std::make_shared<File>(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)));
    const auto info = stream->files_.back()->Stat();
    if (!info.ok() || info->st_size != member.num_bytes) {
      return absl::NotFoundError(
          absl::StrFormat("file %s of the checkpoint is missing or was changed", member.name));
    }
  }
  if (!has_mark) {
    stream->members_.push_back({kCompleteMark, 0});
    stream->files_.push_back(std::make_shared<File>(-1));
  }
  return stream;
}

absl::StatusOr<std::string> TarStream::Next() {
  if (index_ > members_.size()) return std::string();
  if (index_ == members_.size()) {
    ++index_;
    return TarEnd();
  }
  const TarMember& member = members_[index_];
  if (position_ < 0) {
    position_ = 0;
    const auto info = files_[index_]->Stat();
    const absl::Time modified_at = info.ok() ? absl::FromTimeT(info->st_mtime) : absl::UnixEpoch();
    ASSIGN_OR_RETURN(std::string header, TarHeader(member, modified_at));
    if (member.num_bytes == 0) {
      ++index_;
      position_ = -1;
    }
    return header;
  }
  return ReadPiece();
}

absl::StatusOr<std::string> TarStream::ReadPiece() {
  const TarMember& member = members_[index_];
  std::string piece(std::min(kPieceBytes, member.num_bytes - position_), '\0');
  const ssize_t num_read =
      pread(files_[index_]->descriptor(), piece.data(), piece.size(), position_);
  if (num_read <= 0) {
    return absl::DataLossError(absl::StrFormat("file %s ended at byte %d of %d", member.name,
                                               position_, member.num_bytes));
  }
  piece.resize(num_read);
  position_ += num_read;
  if (position_ == member.num_bytes) {
    piece += TarPadding(member.num_bytes);
    ++index_;
    position_ = -1;
  }
  return piece;
}

}  // namespace lathe::gateway
