#include "services/engine/leadership/process_name.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lathe::engine {
namespace {

enum Part { kHost, kPid, kStart, kNamespace, kBoot, kNumParts };

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Fields of /proc/PID/stat.
struct Stat {
  std::string state;
  std::string start;  // clock ticks since boot
};

// Returns nullopt if there is no such process or it is hidden.
std::optional<Stat> ReadStat(const std::string& pid) {
  const std::string stat = ReadAll(absl::StrCat("/proc/", pid, "/stat"));
  // The name in parentheses may contain any character.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 1), ' ');
  constexpr size_t kState = 1;  // field 3 of proc(5)
  constexpr size_t kStartTime = 20;
  if (fields.size() <= kStartTime) return std::nullopt;
  return Stat{.state = fields[kState], .start = fields[kStartTime]};
}

bool IsMissing(const std::string& pid) {
  int number = 0;
  return absl::SimpleAtoi(pid, &number) && number > 0 && kill(number, 0) != 0 && errno == ESRCH;
}

std::string Namespace() {
  std::error_code error;
  // pid:[4026531836]
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  const size_t begin = link.find('[');
  return begin == std::string::npos ? "" : link.substr(begin + 1, link.size() - begin - 2);
}

std::string Boot() {
  std::string id = ReadAll("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::vector<std::string> Split(const std::string& process) {
  std::vector<std::string> parts = absl::StrSplit(process, ':');
  return parts.size() == kNumParts ? parts : std::vector<std::string>();
}

}  // namespace

std::string ThisProcess() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string pid = absl::StrCat(getpid());
  const std::optional<Stat> stat = ReadStat(pid);
  return absl::StrCat(host.data(), ":", pid, ":", stat ? stat->start : "", ":", Namespace(), ":",
                      Boot());
}

bool HasEnded(const std::string& process) {
  const std::vector<std::string> parts = Split(process);
  if (parts.empty() || parts[kBoot].empty() || parts[kNamespace].empty()) return false;
  if (parts[kBoot] != Boot() || parts[kNamespace] != Namespace()) return false;
  const std::optional<Stat> stat = ReadStat(parts[kPid]);
  if (!stat) return IsMissing(parts[kPid]);
  // Z: a zombie, whose parent has not collected its exit code.
  return stat->start != parts[kStart] || stat->state == "Z" || stat->state == "X";
}

std::string DescribeProcess(const std::string& process) {
  const std::vector<std::string> parts = Split(process);
  if (parts.empty()) return "an unknown process";
  return absl::StrCat("process ", parts[kPid], " on ", parts[kHost]);
}

}  // namespace lathe::engine
