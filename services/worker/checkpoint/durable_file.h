// Files that are on disk when we say so: checksum while writing, fsync before closing.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/age/age_encryptor.h"
#include "services/worker/checkpoint/sha256.h"

namespace lathe::worker {

// Writes one new file front to back. After any error the file is worthless: the caller discards the
// whole attempt and never retries fsync on it, because the kernel may have dropped the dirty pages.
class DurableFile {
 public:
  // AlreadyExists when the file is there, Internal or ResourceExhausted (disk full) otherwise.
  static absl::StatusOr<DurableFile> Create(const std::filesystem::path& path);
  // As above; what is appended is written age-encrypted to `recipients`, or as it is if there are
  // none. Plaintext never reaches the disk.
  static absl::StatusOr<DurableFile> Create(const std::filesystem::path& path,
                                            const std::vector<AgeRecipient>& recipients);

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  absl::Status Append(const void* data, size_t num_bytes);

  // fsync and close; returns what is in the file.
  absl::StatusOr<FileDigest> Finish();

 private:
  DurableFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status Write(const void* data, size_t num_bytes);

  std::filesystem::path path_;
  int fd_;
  Sha256 hash_;
  int64_t size_bytes_ = 0;
  std::unique_ptr<AgeEncryptor> encryptor_;  // null: plain
};

// Creates, writes and syncs `path` in one go.
absl::StatusOr<FileDigest> WriteDurably(const std::filesystem::path& path,
                                        const std::string& content,
                                        const std::vector<AgeRecipient>& recipients = {});

}  // namespace lathe::worker
