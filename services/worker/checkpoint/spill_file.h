// Memory that was moved to disk for a while. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::worker {

// A file without a name, so that nothing is left of it when the process ends, however it does.
// Nothing is synced: what is here is lost with the process. Space that was given back is used
// again; the file never shrinks. Thread-safe.
class SpillFile {
 private:
  struct Space;

 public:
  // Bytes in the file. Gives its space back when it goes; may outlive the SpillFile.
  class Extent {
   public:
    Extent(std::shared_ptr<Space> space, int64_t offset, int64_t num_bytes);
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    ~Extent();

    int64_t num_bytes() const { return num_bytes_; }

    // Reads num_bytes() into `data`. DataLoss: they are not what was written.
    absl::Status Read(void* data) const;

   private:
    friend class SpillFile;
    const std::shared_ptr<Space> space_;
    const int64_t offset_;
    const int64_t num_bytes_;
    std::string sha256_;
  };

  // The file is made in `dir` when something is written for the first time.
  explicit SpillFile(std::filesystem::path dir);

  // ResourceExhausted when the disk is full, Internal on other I/O errors.
  absl::StatusOr<std::shared_ptr<const Extent>> Write(const void* data, int64_t num_bytes);

  // Of the file, in use or not.
  int64_t size_bytes() const;

 private:
  const std::shared_ptr<Space> space_;
};

}  // namespace lathe::worker
