// Files that are guaranteed to be on disk: checksum while writing, fsync before closing.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/age/age.h"
#include "services/worker/formats/safetensors/sha256.h"

namespace lathe::worker {

// Writes one new file sequentially. After any error the file is unusable. The caller discards the
// whole attempt and never retries fsync, because the kernel may have dropped the dirty pages.
class DurableFile {
 public:
  // AlreadyExists if the file exists, ResourceExhausted if the disk is full, otherwise Internal.
  static absl::StatusOr<DurableFile> Create(const std::filesystem::path& path);
  // Creates a file that is age-encrypted to `recipients`, or plain if there are none. With
  // recipients, plaintext never reaches the disk.
  static absl::StatusOr<DurableFile> Create(const std::filesystem::path& path,
                                            const std::vector<AgeRecipient>& recipients);

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  absl::Status Append(const void* data, size_t num_bytes);

  // Syncs and closes the file; returns the digest of its bytes.
  absl::StatusOr<FileDigest> Finish();

 private:
  DurableFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status Write(const void* data, size_t num_bytes);

  std::filesystem::path path_;
  int fd_;
  Sha256 hash_;
  int64_t size_bytes_ = 0;
  std::unique_ptr<AgeEncryptor> encryptor_;  // null: not encrypted
};

// Creates, writes and syncs `path`.
absl::StatusOr<FileDigest> WriteDurably(const std::filesystem::path& path,
                                        const std::string& content,
                                        const std::vector<AgeRecipient>& recipients = {});

}  // namespace lathe::worker
