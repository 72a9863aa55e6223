#include "libs/common/object_store/directory_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/files/sync_directory.h"
#include "libs/common/object_store/local_file_error.h"
#include "libs/common/object_store/object_name.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

// Folder of files that are being written. No object has a name in it.
constexpr char kAside[] = ".writing";

absl::Status FileError(const fs::path& path, const char* what, int error) {
  const std::string message = absl::StrFormat("%s: %s", path.string(), what);
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message + ": no such object");
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(message + ": no space left; free some, or raise the quota");
  }
  return absl::ErrnoToStatus(error, message);
}

// An open descriptor.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAll(const fs::path& path, int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0) return FileError(path, "write", errno);
    data += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status CopyBytes(const fs::path& from, const fs::path& to) {
  const Descriptor source(from, O_RDONLY);
  if (source.get() < 0) return FileError(from, "open", errno);
  const Descriptor sink(to, O_WRONLY | O_CREAT | O_EXCL);
  if (sink.get() < 0) return LocalFileError(to, "create", errno);
  std::string piece(1 << 20, '\0');
  for (;;) {
    const ssize_t num_read = read(source.get(), piece.data(), piece.size());
    if (num_read < 0) return FileError(from, "read", errno);
    if (num_read == 0) break;
    RETURN_IF_ERROR(WriteAll(to, sink.get(), piece.data(), static_cast<size_t>(num_read)));
  }
  return fsync(sink.get()) == 0 ? absl::OkStatus() : FileError(to, "sync", errno);
}

// A file beside the objects, which gets a name when it is whole.
class AsideFile {
 public:
  explicit AsideFile(const fs::path& root) : path_(root / kAside / RandomId(8)) {}
  ~AsideFile() { unlink(path_.c_str()); }
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  const fs::path& path() const { return path_; }
  absl::Status MakeFolder() const {
    std::error_code error;
    fs::create_directories(path_.parent_path(), error);
    return error ? FileError(path_.parent_path(), "create", error.value()) : absl::OkStatus();
  }
  absl::Status Write(const std::string& text) const {
    const Descriptor file(path_, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0) return FileError(path_, "create", errno);
    RETURN_IF_ERROR(WriteAll(path_, file.get(), text.data(), text.size()));
    return fsync(file.get()) == 0 ? absl::OkStatus() : FileError(path_, "sync", errno);
  }
  // Names the file, replacing one of that name unless `if_absent`. AlreadyExists.
  absl::Status Name(const fs::path& to, bool if_absent) const {
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (error) return FileError(to.parent_path(), "create", error.value());
    const int failed =
        if_absent ? link(path_.c_str(), to.c_str()) : rename(path_.c_str(), to.c_str());
    if (failed != 0 && errno == EEXIST) {
      return absl::AlreadyExistsError(absl::StrFormat("%s exists", to.string()));
    }
    if (failed != 0) return FileError(to, "name", errno);
    return SyncDirectory(to.parent_path());
  }

 private:
  const fs::path path_;
};

absl::Time ModifiedAt(const struct stat& info) { return absl::TimeFromTimespec(info.st_mtim); }

}  // namespace

DirectoryStore::DirectoryStore(fs::path root) : root_(std::move(root)) {}

std::string DirectoryStore::AddressOf(const std::string& name) const {
  return (root_ / name).string();
}

absl::Status DirectoryStore::PutFile(const std::string& name, const fs::path& file) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const AsideFile aside(root_);
  RETURN_IF_ERROR(aside.MakeFolder());
  RETURN_IF_ERROR(CopyBytes(file, aside.path()));
  return aside.Name(root_ / name, /*if_absent=*/false);
}

absl::Status DirectoryStore::PutText(const std::string& name, const std::string& text) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const AsideFile aside(root_);
  RETURN_IF_ERROR(aside.MakeFolder());
  RETURN_IF_ERROR(aside.Write(text));
  return aside.Name(root_ / name, /*if_absent=*/false);
}

absl::Status DirectoryStore::PutIfAbsent(const std::string& name, const std::string& text) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const AsideFile aside(root_);
  RETURN_IF_ERROR(aside.MakeFolder());
  RETURN_IF_ERROR(aside.Write(text));
  const absl::Status named = aside.Name(root_ / name, /*if_absent=*/true);
  if (!absl::IsAlreadyExists(named)) return named;
  const auto existing = GetText(name, static_cast<int64_t>(text.size()));
  return existing.ok() && *existing == text ? absl::OkStatus() : named;
}

absl::StatusOr<std::string> DirectoryStore::Get(const std::string& name, int64_t offset,
                                                int64_t size) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const fs::path path = root_ / name;
  const Descriptor file(path, O_RDONLY);
  if (file.get() < 0) return FileError(path, "open", errno);
  std::string bytes(size, '\0');
  int64_t have = 0;
  while (have < size) {
    const ssize_t num_read = pread(file.get(), bytes.data() + have, size - have, offset + have);
    if (num_read < 0) return FileError(path, "read", errno);
    if (num_read == 0) {
      return absl::DataLossError(
          absl::StrFormat("%s ended at byte %d", path.string(), offset + have));
    }
    have += num_read;
  }
  return bytes;
}

absl::StatusOr<std::string> DirectoryStore::GetText(const std::string& name, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const ObjectInfo info, Head(name));
  if (info.size_bytes > max_bytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes, limit is %d", AddressOf(name),
                                               info.size_bytes, max_bytes));
  }
  return Get(name, 0, info.size_bytes);
}

absl::Status DirectoryStore::GetFile(const std::string& name, int64_t size, const fs::path& file) {
  ASSIGN_OR_RETURN(const ObjectInfo info, Head(name));
  if (info.size_bytes != size) {
    return absl::DataLossError(
        absl::StrFormat("%s has %d bytes, expected %d", AddressOf(name), info.size_bytes, size));
  }
  return CopyBytes(root_ / name, file);
}

absl::StatusOr<ObjectInfo> DirectoryStore::Head(const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  struct stat info {};
  const fs::path path = root_ / name;
  if (stat(path.c_str(), &info) != 0) return FileError(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return FileError(path, "stat", ENOENT);
  return ObjectInfo{.name = name, .size_bytes = info.st_size, .modified_at = ModifiedAt(info)};
}

absl::StatusOr<std::vector<ObjectInfo>> DirectoryStore::List(const std::string& prefix) {
  std::vector<ObjectInfo> objects;
  std::error_code error;
  const fs::path folder = root_ / prefix.substr(0, prefix.rfind('/') + 1);
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    struct stat info {};
    const std::string name = it->path().lexically_relative(root_).string();
    if (absl::StartsWith(name, kAside) || !absl::StartsWith(name, prefix)) continue;
    if (stat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    objects.push_back({.name = name, .size_bytes = info.st_size, .modified_at = ModifiedAt(info)});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return FileError(folder, "list", error.value());
  }
  std::sort(objects.begin(), objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.name < b.name; });
  return objects;
}

absl::StatusOr<std::vector<std::string>> DirectoryStore::ListFolders(const std::string& prefix) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, List(prefix));
  std::set<std::string> folders;
  for (const ObjectInfo& object : objects) {
    const size_t slash = object.name.find('/', prefix.size());
    if (slash == std::string::npos) continue;
    folders.insert(object.name.substr(prefix.size(), slash - prefix.size()));
  }
  return std::vector<std::string>(folders.begin(), folders.end());
}

absl::Status DirectoryStore::Copy(const std::string& from, const std::string& to, int64_t) {
  RETURN_IF_ERROR(CheckObjectName(from));
  return PutFile(to, root_ / from);
}

absl::Status DirectoryStore::Delete(const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  const fs::path path = root_ / name;
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(path, "delete", errno);
  std::error_code ignored;  // the folder may have other objects
  if (path.parent_path() != root_) fs::remove(path.parent_path(), ignored);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> DirectoryStore::AbortUploads(const std::string&, absl::Time before) {
  int64_t num_removed = 0;
  std::error_code error;
  for (fs::directory_iterator it(root_ / kAside, error), end; !error && it != end;
       it.increment(error)) {
    struct stat info {};
    if (stat(it->path().c_str(), &info) != 0 || ModifiedAt(info) >= before) continue;
    if (unlink(it->path().c_str()) == 0) ++num_removed;
  }
  return num_removed;
}

}  // namespace lathe
