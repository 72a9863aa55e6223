#include "libs/common/memory/process_memory.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <string>

namespace lathe {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr char kMeminfo[] = "MemTotal:  9000000 kB\nMemAvailable:   4194304 kB\n";

// A directory that replaces "/".
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "memory-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

TEST_CASE("Available memory is what the kernel says without a cgroup limit", "[memory]") {
  const TempDir root;
  root.Write("proc/meminfo", kMeminfo);
  CHECK(*AvailableMemoryBytes(root.path()) == 4 * kGib);
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/memory.max", "max\n");
  CHECK(*AvailableMemoryBytes(root.path()) == 4 * kGib);
}

TEST_CASE("A limit on any cgroup above counts", "[memory]") {
  const TempDir root;
  root.Write("proc/meminfo", kMeminfo);
  root.Write("proc/self/cgroup", "0::/a/b\n");
  const std::string limited =
      GENERATE("sys/fs/cgroup/memory.max", "sys/fs/cgroup/a/memory.max",
               "sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes");
  root.Write(limited, "1073741824\n");
  CHECK(*AvailableMemoryBytes(root.path()) == kGib);
}

TEST_CASE("This machine's available memory can be read", "[memory]") {
  CHECK(*AvailableMemoryBytes() > 0);
}

}  // namespace
}  // namespace lathe
