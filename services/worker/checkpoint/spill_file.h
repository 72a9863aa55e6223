// Temporary storage on disk for data moved out of memory. Free of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::worker {

// A file without a name, so that nothing remains when the process ends for any reason. It is never
// synced: its data is lost with the process. Returned space is reused; the file never shrinks.
// Thread-safe.
class SpillFile {
 private:
  struct Space;

 public:
  // A range of bytes in the file. Its destructor returns the space. It may outlive the SpillFile.
  class Extent {
   public:
    Extent(std::shared_ptr<Space> space, int64_t offset, int64_t num_bytes);
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    ~Extent();

    int64_t num_bytes() const { return num_bytes_; }

    // Reads num_bytes() into `data`. DataLoss if they differ from the bytes written.
    absl::Status Read(void* data) const;

   private:
    friend class SpillFile;
    const std::shared_ptr<Space> space_;
    const int64_t offset_;
    const int64_t num_bytes_;
    std::string sha256_;
  };

  // The first Write creates the file in `dir`.
  explicit SpillFile(std::filesystem::path dir);

  // ResourceExhausted if the disk is full, Internal on other I/O errors.
  absl::StatusOr<std::shared_ptr<const Extent>> Write(const void* data, int64_t num_bytes);

  // Size of the file, including free space.
  int64_t size_bytes() const;

 private:
  const std::shared_ptr<Space> space_;
};

}  // namespace lathe::worker
