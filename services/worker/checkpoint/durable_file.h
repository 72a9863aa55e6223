// Files that are on disk when we say so: checksum while writing, fsync before closing.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/checkpoint/sha256.h"

namespace lathe::worker {

// Writes one new file front to back. After any error the file is worthless: the caller discards the
// whole attempt and never retries fsync on it, because the kernel may have dropped the dirty pages.
class DurableFile {
 public:
  // AlreadyExists when the file is there, Internal or ResourceExhausted (disk full) otherwise.
  static absl::StatusOr<DurableFile> Create(const std::filesystem::path& path);

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  absl::Status Append(const void* data, size_t num_bytes);

  // fsync and close; returns what was written.
  absl::StatusOr<FileDigest> Finish();

 private:
  DurableFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_;
  Sha256 hash_;
  int64_t size_bytes_ = 0;
};

// Creates, writes and syncs `path` in one go.
absl::StatusOr<FileDigest> WriteDurably(const std::filesystem::path& path,
                                        const std::string& content);

// Makes creations and renames inside `dir` durable.
absl::Status SyncDirectory(const std::filesystem::path& dir);

}  // namespace lathe::worker
