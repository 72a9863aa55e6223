#include "libs/common/object_store/checkpoint_objects.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/files/copy_name.h"
#include "libs/common/json/json.h"
#include "libs/common/logging/logging.h"
#include "libs/common/object_store/local_file_error.h"
#include "libs/common/object_store/object_name.h"
#include "libs/common/status_macros.h"

namespace lathe {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "checkpoints/";
constexpr char kTrashFolder[] = "trash/";
constexpr char kMarker[] = "LATHE_STORE";
constexpr char kManifest[] = "manifest.json";
constexpr int64_t kMaxManifestBytes = 16 << 20;  // the most that a client of S3 keeps
constexpr int64_t kMaxMarkerBytes = 4096;

// An entry of `files` in a manifest.
struct ListedFile {
  std::string name;
  int64_t size_bytes = 0;
  std::string sha256;
};

std::string FolderOf(const std::string& dir) { return absl::StrCat(kFolder, dir, "/"); }
std::string NameOf(const std::string& dir, const std::string& file) { return FolderOf(dir) + file; }

absl::StatusOr<std::vector<ListedFile>> FilesIn(const std::string& manifest,
                                                const std::string& where) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(manifest, where));
  std::vector<ListedFile> files;
  if (!json.is_object() || !json.contains("files") || !json.at("files").is_array()) {
    return absl::DataLossError(absl::StrCat(where, " lists no files"));
  }
  for (const Json& entry : json.at("files")) {
    ListedFile file;
    ASSIGN_OR_RETURN(file.name, JsonString(entry, "name"));
    ASSIGN_OR_RETURN(file.size_bytes, JsonInt(entry, "size_bytes"));
    ASSIGN_OR_RETURN(file.sha256, JsonString(entry, "sha256"));
    if (!CheckObjectName(file.name).ok() || absl::StrContains(file.name, "/")) {
      return absl::DataLossError(absl::StrCat(where, " names a file '", file.name, "'"));
    }
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<std::string> ReadLocal(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return LocalFileError(path, "read", errno);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

// Syncs a file and returns the digest of its bytes.
absl::StatusOr<std::string> SyncAndHash(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return LocalFileError(path, "open", errno);
  Sha256 hash;
  std::string piece(1 << 20, '\0');
  ssize_t num_read = 0;
  while ((num_read = read(fd, piece.data(), piece.size())) > 0) {
    hash.Update({piece.data(), static_cast<size_t>(num_read)});
  }
  const int error = num_read < 0 || fsync(fd) != 0 ? errno : 0;
  close(fd);
  if (error != 0) return LocalFileError(path, "read", error);
  return hash.FinishHex();
}

absl::Status WriteAndSync(const fs::path& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return LocalFileError(path, "create", errno);
  const ssize_t written = write(fd, text.data(), text.size());
  int error = written < 0 || fsync(fd) != 0 ? errno : 0;
  if (error == 0 && written != static_cast<ssize_t>(text.size())) error = ENOSPC;
  close(fd);
  return error == 0 ? absl::OkStatus() : LocalFileError(path, "write", error);
}

// Removes what an attempt to fetch has left.
absl::Status Empty(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    fs::remove_all(it->path(), error);
    if (error) break;
  }
  return error ? LocalFileError(folder, "empty", error.value()) : absl::OkStatus();
}

// A failure of the store is the server's. Only these codes say so to the caller of a save.
absl::Status AsServerError(const absl::Status& status) {
  if (status.ok() || absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) {
    return status;
  }
  return absl::InternalError(status.message());
}

}  // namespace

CheckpointObjects::CheckpointObjects(std::shared_ptr<ObjectStore> objects,
                                     const CheckpointObjects* same_place)
    : objects_(std::move(objects)),
      ownership_(same_place != nullptr ? same_place->ownership_ : std::make_shared<Ownership>()) {}

std::string CheckpointObjects::AddressOf(const std::string& dir) const {
  return objects_->AddressOf(kFolder + dir);
}

std::string CheckpointObjects::Address() const {
  const std::string marker = objects_->AddressOf(kMarker);
  return marker.substr(0, marker.size() - sizeof(kMarker));
}

absl::StatusOr<std::string> CheckpointObjects::ReadOwner() {
  ASSIGN_OR_RETURN(std::string text, objects_->GetText(kMarker, kMaxMarkerBytes));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

absl::Status CheckpointObjects::Claim(const std::string& store_id) {
  const absl::Status owned = CheckOwner(store_id);
  if (!absl::IsNotFound(owned)) return owned;
  // The store may be full, or refuse writes for now. That says nothing about the place.
  const absl::Status made = objects_->PutIfAbsent(kMarker, store_id + "\n");
  if (!made.ok() && !absl::IsAlreadyExists(made)) {
    return absl::IsFailedPrecondition(made) ? made : absl::UnavailableError(made.message());
  }
  const absl::Status claimed = CheckOwner(store_id);
  if (!absl::IsNotFound(claimed)) return claimed;
  return absl::UnavailableError(
      absl::StrCat(objects_->AddressOf(kMarker), ": the store took it and does not have it"));
}

absl::Status CheckpointObjects::CheckOwner(const std::string& store_id) {
  ASSIGN_OR_RETURN(const std::string owner, ReadOwner());
  if (owner != store_id) {
    return WithDetail(
        absl::FailedPreconditionError(absl::StrFormat(
            "%s belongs to another installation (%s, this one is %s): give each its own prefix. If "
            "this place's database was lost and its checkpoints are to be adopted, delete that "
            "object first",
            objects_->AddressOf(kMarker), owner, store_id)),
        kOfAnother);
  }
  absl::MutexLock lock(&ownership_->mu);
  ownership_->owner = owner;
  return absl::OkStatus();
}

absl::Status CheckpointObjects::CheckClaimed() {
  if (ownership_->is_checked) return absl::OkStatus();
  const absl::StatusOr<std::string> owner = ReadOwner();
  if (absl::IsNotFound(owner.status())) {
    return absl::UnavailableError(absl::StrFormat(
        "there is no %s: the place was emptied, or the engine uses another one; give all processes "
        "the same storage.files",
        objects_->AddressOf(kMarker)));
  }
  RETURN_IF_ERROR(owner.status());
  absl::MutexLock lock(&ownership_->mu);
  std::string& before = ownership_->owner;
  if (before.empty()) before = *owner;
  if (before != *owner) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s belongs to another installation now (%s, before %s)",
                        objects_->AddressOf(kMarker), *owner, before));
  }
  ownership_->is_checked = true;
  return absl::OkStatus();
}

absl::Status CheckpointObjects::Publish(const std::string& dir, const fs::path& folder) {
  return AsServerError(PublishNow(dir, folder));
}

absl::Status CheckpointObjects::PublishNow(const std::string& dir, const fs::path& folder) {
  // No other installation's place gets objects. A save takes several requests anyway.
  ownership_->is_checked = false;
  RETURN_IF_ERROR(CheckClaimed());
  ASSIGN_OR_RETURN(const std::string manifest, ReadLocal(folder / kManifest));
  if (manifest.size() > kMaxManifestBytes) {
    return absl::InternalError(
        absl::StrFormat("manifest.json has %d bytes, the limit of an object store is %d",
                        manifest.size(), kMaxManifestBytes));
  }
  ASSIGN_OR_RETURN(const std::vector<ListedFile> files,
                   FilesIn(manifest, (folder / kManifest).string()));
  const std::string manifest_name = NameOf(dir, kManifest);
  const absl::StatusOr<std::string> earlier = objects_->GetText(manifest_name, kMaxManifestBytes);
  if (earlier.ok() && *earlier == manifest) return absl::OkStatus();
  if (earlier.ok()) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s exists with other bytes; published checkpoints never change",
                        objects_->AddressOf(manifest_name)));
  }
  if (!absl::IsNotFound(earlier.status())) return earlier.status();
  for (const ListedFile& file : files) {
    RETURN_IF_ERROR(objects_->PutFile(NameOf(dir, file.name), folder / file.name));
  }
  FailPoint("worker.publish.files");
  // A store that said that it has an object may not have it.
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> listed, objects_->List(FolderOf(dir)));
  std::map<std::string, int64_t> sizes;
  for (const ObjectInfo& object : listed) sizes[object.name] = object.size_bytes;
  for (const ListedFile& file : files) {
    const auto it = sizes.find(NameOf(dir, file.name));
    if (it != sizes.end() && it->second == file.size_bytes) continue;
    return absl::UnavailableError(absl::StrFormat(
        "%s: the store took %d bytes and %s", objects_->AddressOf(NameOf(dir, file.name)),
        file.size_bytes,
        it == sizes.end() ? "does not list them" : absl::StrFormat("lists %d", it->second)));
  }
  RETURN_IF_ERROR(objects_->PutIfAbsent(manifest_name, manifest));
  ASSIGN_OR_RETURN(const std::string published,
                   objects_->GetText(manifest_name, kMaxManifestBytes));
  if (published != manifest) {
    return absl::UnavailableError(absl::StrFormat("%s: the store has other bytes than it took",
                                                  objects_->AddressOf(manifest_name)));
  }
  FailPoint("worker.publish.manifest");
  return absl::OkStatus();
}

absl::Status CheckpointObjects::Fetch(const std::string& dir, const fs::path& into,
                                      const MakeRoom& make_room) {
  absl::Status status = FetchNow(dir, into, make_room);
  if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
    // A checkpoint counts as lost only if the place is still ours, and the same is seen twice.
    LogWarn("a checkpoint cannot be fetched, and is fetched once more",
            {{"dir", dir}, {"error", status.message()}});
    ownership_->is_checked = false;
    RETURN_IF_ERROR(Empty(into));
    status = FetchNow(dir, into, make_room);
  }
  if (status.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status) ||
      absl::IsResourceExhausted(status)) {
    return status;
  }
  return absl::UnavailableError(status.message());
}

absl::Status CheckpointObjects::FetchNow(const std::string& dir, const fs::path& into,
                                         const MakeRoom& make_room) {
  // In a wrong place every checkpoint would be missing, and every model lost.
  RETURN_IF_ERROR(CheckClaimed());
  const std::string where = objects_->AddressOf(NameOf(dir, kManifest));
  const absl::StatusOr<std::string> manifest = ReadText(dir, kManifest);
  if (absl::IsNotFound(manifest.status())) {
    return absl::NotFoundError(absl::StrCat(where, " is missing: there is no such checkpoint"));
  }
  RETURN_IF_ERROR(manifest.status());
  const absl::StatusOr<std::vector<ListedFile>> files = FilesIn(*manifest, where);
  if (!files.ok()) return absl::DataLossError(files.status().message());
  auto bytes = static_cast<int64_t>(manifest->size());
  for (const ListedFile& file : *files) bytes += file.size_bytes;
  if (make_room) make_room(bytes);
  for (const ListedFile& file : *files) {
    const std::string name = NameOf(dir, file.name);
    const absl::Status got = objects_->GetFile(name, file.size_bytes, into / file.name);
    if (absl::IsNotFound(got)) {
      return absl::DataLossError(absl::StrCat(objects_->AddressOf(name), " is missing"));
    }
    RETURN_IF_ERROR(got);
    const absl::StatusOr<std::string> sha256 = SyncAndHash(into / file.name);
    RETURN_IF_ERROR(sha256.status());
    if (std::string_view(*sha256) != file.sha256) {
      return absl::DataLossError(absl::StrCat(objects_->AddressOf(name), ": checksum mismatch"));
    }
  }
  return WriteAndSync(into / kManifest, *manifest);
}

absl::StatusOr<std::string> CheckpointObjects::ReadText(const std::string& dir,
                                                        const std::string& file) {
  return objects_->GetText(NameOf(dir, file), kMaxManifestBytes);
}

absl::StatusOr<ObjectInfo> CheckpointObjects::Describe(const std::string& dir,
                                                       const std::string& file) {
  return objects_->Head(NameOf(dir, file));
}

absl::StatusOr<std::string> CheckpointObjects::Read(const std::string& dir, const std::string& file,
                                                    int64_t offset, int64_t size) {
  return objects_->Get(NameOf(dir, file), offset, size);
}

absl::StatusOr<int64_t> CheckpointObjects::BytesOf(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, objects_->List(FolderOf(dir)));
  int64_t bytes = 0;
  for (const ObjectInfo& object : objects) bytes += object.size_bytes;
  return bytes;
}

absl::Status CheckpointObjects::Copy(const std::string& from, const std::string& to,
                                     const std::string& tinker_path) {
  ASSIGN_OR_RETURN(const std::string manifest, ReadText(from, kManifest));
  ASSIGN_OR_RETURN(const std::vector<ListedFile> files,
                   FilesIn(manifest, objects_->AddressOf(NameOf(from, kManifest))));
  for (const ListedFile& file : files) {
    RETURN_IF_ERROR(
        objects_->Copy(NameOf(from, file.name), NameOf(to, file.name), file.size_bytes));
  }
  RETURN_IF_ERROR(objects_->PutText(NameOf(to, kCopyNameFile), tinker_path));
  return objects_->PutIfAbsent(NameOf(to, kManifest), manifest);
}

absl::Status CheckpointObjects::Delete(const std::string& dir) {
  RETURN_IF_ERROR(objects_->Delete(NameOf(dir, kManifest)));
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, objects_->List(FolderOf(dir)));
  for (const ObjectInfo& object : objects) RETURN_IF_ERROR(objects_->Delete(object.name));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CheckpointObjects::ListDirs() {
  return objects_->ListFolders(kFolder);
}

absl::Status CheckpointObjects::MarkAsTrash(const std::string& dir) {
  const absl::Status marked = objects_->PutIfAbsent(kTrashFolder + dir, "\n");
  return absl::IsAlreadyExists(marked) ? absl::OkStatus() : marked;
}

absl::Status CheckpointObjects::UnmarkAsTrash(const std::string& dir) {
  return objects_->Delete(kTrashFolder + dir);
}

absl::StatusOr<bool> CheckpointObjects::IsTrash(const std::string& dir) {
  const absl::StatusOr<ObjectInfo> mark = objects_->Head(kTrashFolder + dir);
  if (absl::IsNotFound(mark.status())) return false;
  RETURN_IF_ERROR(mark.status());
  return true;
}

absl::StatusOr<std::vector<CheckpointObjects::Trashed>> CheckpointObjects::ListTrash() {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> marks, objects_->List(kTrashFolder));
  std::vector<Trashed> trashed;
  for (const ObjectInfo& mark : marks) {
    trashed.push_back({mark.name.substr(sizeof(kTrashFolder) - 1), mark.modified_at});
  }
  return trashed;
}

absl::StatusOr<int64_t> CheckpointObjects::AbortUploads(absl::Time before) {
  return objects_->AbortUploads(kFolder, before);
}

}  // namespace lathe
