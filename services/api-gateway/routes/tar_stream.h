// A folder's files as an uncompressed tar, piece by piece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/routes/tar.h"

namespace lathe::gateway {

// All files are open from the start, so a checkpoint that is deleted meanwhile is still delivered
// whole. Blocks on the disk; one thread at a time.
class TarStream {
 public:
  // NotFound when a file is missing, is no plain file, or has another size than said.
  static absl::StatusOr<std::unique_ptr<TarStream>> Open(const std::filesystem::path& dir,
                                                         std::vector<TarMember> members);

  int64_t num_bytes() const { return TarBytes(members_); }

  // The next piece, at most about 1 MiB; empty after the last. DataLoss when a file has shrunk.
  absl::StatusOr<std::string> Next();

 private:
  class File;

  explicit TarStream(std::vector<TarMember> members) : members_(std::move(members)) {}
  absl::StatusOr<std::string> ReadPiece();

  std::vector<TarMember> members_;
  std::vector<std::shared_ptr<File>> files_;
  // The member in progress; members_.size() at the end, one more after the end was given.
  size_t index_ = 0;
  // Bytes of it that were given; -1 before its header.
  int64_t position_ = -1;
};

}  // namespace lathe::gateway
