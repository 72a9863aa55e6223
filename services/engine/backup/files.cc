#include "services/engine/backup/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/files/new_file.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 1 << 20;
constexpr char kLostAndFound[] = "lost+found";

// Damage of one file is no reason to go without the others. A missing permission is no damage.
absl::Status ReadError(int error, const std::string& text) {
  const absl::Status status = absl::ErrnoToStatus(error, text);
  return error == EIO ? absl::DataLossError(status.message()) : status;
}

// Gives each piece of the file to `take`. Returns size and digest.
absl::StatusOr<BackupFile> ReadPieces(const fs::path& path, const AfterPiece& after_piece,
                                      const std::function<absl::Status(std::string_view)>& take) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) return ReadError(errno, absl::StrCat("cannot read ", path.string()));
  Sha256 digest;
  BackupFile read;
  std::string piece(kPieceBytes, '\0');
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), file.get())) {
    digest.Update({piece.data(), size});
    read.size_bytes += static_cast<int64_t>(size);
    RETURN_IF_ERROR(take({piece.data(), size}));
    if (after_piece) RETURN_IF_ERROR(after_piece());
  }
  if (std::ferror(file.get())) {
    return ReadError(errno, absl::StrCat("cannot read ", path.string()));
  }
  read.sha256 = digest.FinishHex();
  return read;
}

// Calls `take` with the path of each entry below `root`, and whether it is a directory. A folder
// lost+found in `root` is the file system's own.
absl::Status ForEachEntry(const fs::path& root,
                          const std::function<absl::Status(const fs::path&, bool)>& take) {
  std::error_code error;
  fs::recursive_directory_iterator it(root, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const bool is_directory = it->is_directory(error);
    if (error) break;
    if (it.depth() == 0 && it->path().filename() == kLostAndFound) {
      it.disable_recursion_pending();
      continue;
    }
    RETURN_IF_ERROR(take(it->path(), is_directory));
  }
  return ListStatus(error, root);
}

absl::Status MoveFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return absl::OkStatus();
  if (error != std::errc::cross_device_link) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", to.string()));
  }
  RETURN_IF_ERROR(CopyFile(from, to).status());
  fs::remove(from, error);
  return absl::OkStatus();
}

}  // namespace

absl::Status ListStatus(const std::error_code& error, const fs::path& dir) {
  if (!error) return absl::OkStatus();
  return ReadError(error.value(), absl::StrCat("cannot list ", dir.string()));
}

absl::Status LinkFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (!error) return absl::OkStatus();
  return CopyFile(from, to).status();
}

absl::StatusOr<BackupFile> CopyFile(const fs::path& from, const fs::path& to,
                                    const AfterPiece& after_piece) {
  std::error_code error;
  const bool exists = fs::exists(from, error);
  if (error) return ReadError(error.value(), absl::StrCat("cannot read ", from.string()));
  if (!exists) {
    return absl::NotFoundError(absl::StrCat(from.string(), " does not exist"));
  }
  NewFile file(to);
  RETURN_IF_ERROR(file.Open());
  ASSIGN_OR_RETURN(BackupFile copied, ReadPieces(from, after_piece, [&](std::string_view piece) {
                     return file.Write(piece);
                   }));
  RETURN_IF_ERROR(file.Sync());
  return copied;
}

absl::StatusOr<BackupFile> DigestFile(const fs::path& root, const std::string& path,
                                      const AfterPiece& after_piece) {
  const auto ignore = [](std::string_view) { return absl::OkStatus(); };
  ASSIGN_OR_RETURN(BackupFile read, ReadPieces(root / path, after_piece, ignore));
  read.path = path;
  return read;
}

absl::Status MakeDir(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", dir.string()));
}

absl::StatusOr<std::string> FirstEntry(const fs::path& dir,
                                       const std::vector<std::string>& allowed) {
  std::error_code error;
  if (!fs::exists(dir, error) && !error) return "";
  fs::directory_iterator it(dir, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::ranges::find(allowed, name) == allowed.end()) return name;
  }
  RETURN_IF_ERROR(ListStatus(error, dir));
  return "";
}

absl::StatusOr<std::vector<std::string>> ListFiles(const fs::path& root) {
  std::vector<std::string> files;
  RETURN_IF_ERROR(ForEachEntry(root, [&](const fs::path& path, bool is_directory) {
    if (!is_directory) files.push_back(path.lexically_relative(root).string());
    return absl::OkStatus();
  }));
  std::ranges::sort(files);
  return files;
}

absl::StatusOr<std::vector<std::string>> MoveFiles(const fs::path& from, const fs::path& to) {
  std::vector<std::string> unreadable;
  ASSIGN_OR_RETURN(const std::vector<std::string> files, ListFiles(from));
  for (const std::string& file : files) {
    RETURN_IF_ERROR(MakeDir((to / file).parent_path()));
    const absl::Status status = MoveFile(from / file, to / file);
    if (absl::IsDataLoss(status)) {
      unreadable.push_back(file);
    } else {
      RETURN_IF_ERROR(status);
    }
  }
  return unreadable;
}

absl::Status SyncTree(const fs::path& root) {
  RETURN_IF_ERROR(ForEachEntry(root, [](const fs::path& path, bool is_directory) {
    return is_directory ? SyncDirectory(path) : absl::OkStatus();
  }));
  RETURN_IF_ERROR(SyncDirectory(root));
  return SyncDirectory(fs::absolute(root).parent_path());
}

}  // namespace lathe::engine
