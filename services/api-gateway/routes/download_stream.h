// Files of a checkpoint as one download, piece by piece: a tar of several, or one as it is.
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
// whole. Holds one piece in memory. Blocks on the disk; one thread at a time.
class DownloadStream {
 public:
  // NotFound when a file is missing, is no plain file, or has another size than said.
  static absl::StatusOr<std::unique_ptr<DownloadStream>> OpenTar(const std::filesystem::path& dir,
                                                                 std::vector<TarMember> members);
  static absl::StatusOr<std::unique_ptr<DownloadStream>> OpenPlain(const std::filesystem::path& dir,
                                                                   const TarMember& member);

  // Of the whole download; the same for the same files, as is every byte.
  int64_t num_bytes() const { return num_bytes_; }

  // The next pieces are those of bytes [begin, end) of the download. 0 <= begin <= end <=
  // num_bytes().
  void Select(int64_t begin, int64_t end);

  // The next piece, at most 1 MiB; empty after the last. DataLoss when a file has shrunk.
  absl::StatusOr<std::string> Next();

 private:
  class File;
  // A part of the download: bytes made here, or a file.
  struct Part {
    std::string bytes;
    std::shared_ptr<File> file;  // null: `bytes`
    int64_t num_bytes = 0;
  };

  void AddBytes(std::string bytes);
  void AddFile(std::shared_ptr<File> file, int64_t num_bytes);
  absl::StatusOr<std::string> Read(const Part& part, int64_t offset, int64_t size) const;

  std::vector<Part> parts_;
  int64_t num_bytes_ = 0;
  int64_t position_ = 0;
  int64_t end_ = 0;
};

}  // namespace lathe::gateway
