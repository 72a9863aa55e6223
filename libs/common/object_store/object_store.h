// Objects under names in one place: a bucket with a prefix, or a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe {

// Code of an error that newer keys or a corrected clock end, so no option has to change.
inline constexpr char kNotValidNow[] = "object_store_keys_not_valid_now";

// The place of a process's checkpoints, as it tells another process. Both fields are empty if that
// is the data directory.
struct CheckpointPlace {
  std::string address;   // "s3://bucket/prefix", for people
  std::string store_id;  // of the installation that owns the place; empty: unknown
};

struct ObjectInfo {
  std::string name;
  int64_t size_bytes = 0;
  absl::Time modified_at;
};

// Names are relative to the place, of [A-Za-z0-9._/-], without empty, "." and ".." parts. An object
// appears whole or not at all. All calls block and are thread-safe. Errors name the object and a
// remedy: NotFound, AlreadyExists, ResourceExhausted (no room), Unavailable (it may work later),
// PermissionDenied and FailedPrecondition (the configuration is wrong), DataLoss, Internal.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Returns the address of an object for people, "s3://bucket/prefix/name".
  virtual std::string AddressOf(const std::string& name) const = 0;

  // Makes the bytes of a local file an object. Replaces an object of that name.
  virtual absl::Status PutFile(const std::string& name, const std::filesystem::path& file) = 0;
  virtual absl::Status PutText(const std::string& name, const std::string& text) = 0;
  // AlreadyExists if there is an object of that name with other bytes.
  virtual absl::Status PutIfAbsent(const std::string& name, const std::string& text) = 0;

  // Returns bytes [offset, offset + size) of an object. DataLoss if it ends before them.
  virtual absl::StatusOr<std::string> Get(const std::string& name, int64_t offset,
                                          int64_t size) = 0;
  // Returns a small object. DataLoss if it is larger than `max_bytes`.
  virtual absl::StatusOr<std::string> GetText(const std::string& name, int64_t max_bytes) = 0;
  // Writes an object of `size` bytes to a new local file, which is not synced. The caller verifies
  // its bytes, and discards the file after an error. DataLoss if the object has another size.
  virtual absl::Status GetFile(const std::string& name, int64_t size,
                               const std::filesystem::path& file) = 0;
  virtual absl::StatusOr<ObjectInfo> Head(const std::string& name) = 0;

  // Returns all objects whose names begin with `prefix`, in the order of names.
  virtual absl::StatusOr<std::vector<ObjectInfo>> List(const std::string& prefix) = 0;
  // Returns the distinct parts of names between `prefix`, which ends in a slash, and the next
  // slash, in order.
  virtual absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& prefix) = 0;

  // Copies an object of `size` bytes inside the place. Replaces an object of the name `to`.
  virtual absl::Status Copy(const std::string& from, const std::string& to, int64_t size) = 0;
  // Removes an object. OK if there is none.
  virtual absl::Status Delete(const std::string& name) = 0;
  // Makes running and later calls fail soon, with Unavailable, so that the process can end.
  virtual void Cancel() {}

  // Removes what uploads that never ended have left, if their names begin with `prefix` and they
  // began before `before`. Returns how many.
  virtual absl::StatusOr<int64_t> AbortUploads(const std::string& prefix, absl::Time before) = 0;
};

}  // namespace lathe
