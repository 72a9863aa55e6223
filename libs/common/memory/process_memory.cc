#include "libs/common/memory/process_memory.h"

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace lathe {

namespace {

namespace fs = std::filesystem;

// Reads the number in the first line of a file. Returns nullopt for "max" or a missing file.
std::optional<int64_t> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  int64_t number;
  if (!std::getline(file, line) || !absl::SimpleAtoi(line, &number)) return std::nullopt;
  return number;
}

std::optional<int64_t> MemAvailable(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib;
    if (words.size() >= 2 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib)) {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

// Returns the path of this process in the unified hierarchy ("0::/path" in /proc/self/cgroup).
fs::path UnifiedGroup(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "0::/")) return line.substr(4);
  }
  return {};
}

int64_t CgroupLimit(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  int64_t limit = ReadNumber(mount / "memory/memory.limit_in_bytes")
                      .value_or(std::numeric_limits<int64_t>::max());
  fs::path group = mount;
  for (const fs::path& part : UnifiedGroup(root)) {
    limit = std::min(limit, ReadNumber(group / "memory.max").value_or(limit));
    group /= part;
  }
  return std::min(limit, ReadNumber(group / "memory.max").value_or(limit));
}

}  // namespace

absl::StatusOr<int64_t> AvailableMemoryBytes(const fs::path& root) {
  const std::optional<int64_t> available = MemAvailable(root);
  if (!available) return absl::InternalError("no MemAvailable in /proc/meminfo");
  return std::min(*available, CgroupLimit(root));
}

int64_t ResidentMemoryBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

}  // namespace lathe
