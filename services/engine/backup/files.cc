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

// Gives each piece of the file to `take`. Returns size and digest.
absl::StatusOr<BackupFile> ReadPieces(const fs::path& path,
                                      const std::function<absl::Status(std::string_view)>& take) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  Sha256 digest;
  BackupFile read;
  std::string piece(kPieceBytes, '\0');
  while (const size_t size = std::fread(piece.data(), 1, piece.size(), file.get())) {
    digest.Update({piece.data(), size});
    read.size_bytes += static_cast<int64_t>(size);
    RETURN_IF_ERROR(take({piece.data(), size}));
  }
  if (std::ferror(file.get())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  }
  read.sha256 = digest.FinishHex();
  return read;
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

absl::Status LinkFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (!error) return absl::OkStatus();
  return CopyFile(from, to).status();
}

absl::StatusOr<BackupFile> CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from, error)) {
    return absl::NotFoundError(absl::StrCat(from.string(), " does not exist"));
  }
  NewFile file(to);
  RETURN_IF_ERROR(file.Open());
  ASSIGN_OR_RETURN(BackupFile copied,
                   ReadPieces(from, [&](std::string_view piece) { return file.Write(piece); }));
  RETURN_IF_ERROR(file.Sync());
  return copied;
}

absl::StatusOr<BackupFile> DigestFile(const fs::path& root, const std::string& path) {
  ASSIGN_OR_RETURN(BackupFile read,
                   ReadPieces(root / path, [](std::string_view) { return absl::OkStatus(); }));
  read.path = path;
  return read;
}

absl::Status MakeDir(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", dir.string()));
}

std::string FirstEntry(const fs::path& dir, const std::vector<std::string>& allowed) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::ranges::find(allowed, name) == allowed.end()) return name;
  }
  return "";
}

std::vector<std::string> ListFiles(const fs::path& root, const std::string& part) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root / part, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_directory()) files.push_back(fs::relative(it->path(), root).string());
  }
  std::ranges::sort(files);
  return files;
}

absl::Status MoveFiles(const fs::path& from, const fs::path& to) {
  for (const std::string& file : ListFiles(from, "")) {
    RETURN_IF_ERROR(MakeDir((to / file).parent_path()));
    RETURN_IF_ERROR(MoveFile(from / file, to / file));
  }
  return absl::OkStatus();
}

absl::Status SyncTree(const fs::path& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory()) RETURN_IF_ERROR(SyncDirectory(it->path()));
  }
  RETURN_IF_ERROR(SyncDirectory(root));
  return SyncDirectory(fs::absolute(root).parent_path());
}

}  // namespace lathe::engine
