// Counts the passes and firings of each fail point, in a file that outlives its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"

namespace lathe {

// The file has a line "NAME PASSED FIRED" of fixed width for each point. It is memory-mapped, so
// the counts survive even if the process dies at the next instruction. Not thread-safe.
class PassCounts {
 public:
  PassCounts();
  ~PassCounts();
  PassCounts(const PassCounts&) = delete;
  PassCounts& operator=(const PassCounts&) = delete;

  // Creates `path` and counts into it from now on.
  absl::Status Open(const std::filesystem::path& path);
  // `point` is an index in FailPointList().
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
