// How often each fail point was passed and fired, in a file that outlives its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"

namespace lathe {

// One line a point, "NAME PASSED FIRED", of fixed width. The file is mapped: what was counted is in
// it even when the process ends with the next instruction. Not thread-safe.
class PassCounts {
 public:
  PassCounts();
  ~PassCounts();
  PassCounts(const PassCounts&) = delete;
  PassCounts& operator=(const PassCounts&) = delete;

  // Counts into `path`, a new file, from now on.
  absl::Status Open(const std::filesystem::path& path);
  // `point` is a place in FailPointList().
  void AddPass(size_t point);
  void AddFire(size_t point);

 private:
  struct Counts {
    int64_t passed = 0;
    int64_t fired = 0;
  };

  void Show(size_t point);

  std::vector<Counts> counts_;
  char* lines_ = nullptr;  // mapped; null: no file
};

}  // namespace lathe
