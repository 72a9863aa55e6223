#include "tools/lathe/memory_check.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr char kMeminfo[] = "MemTotal:  9000000 kB\nMemAvailable:   4194304 kB\n";

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

TEST_CASE("A model that does not fit is refused with the numbers", "[memory]") {
  CHECK(CheckMemory(2 * kGib, 4 * kGib).ok());
  const absl::Status status = CheckMemory(4 * kGib, 4 * kGib);
  CHECK(ErrorCode(status) == "too_little_memory");
  CHECK(absl::StrContains(status.message(), "needs about 4.9 GiB"));
  CHECK(absl::StrContains(status.message(), "4.0 GiB are available"));
  CHECK(ExitCodeOf(status) == 69);
}

}  // namespace
}  // namespace lathe::cli
