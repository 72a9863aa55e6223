#include "libs/common/fail_point/pass_counts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/fail_point/fail_point_list.h"

namespace lathe {
namespace {

constexpr size_t kLineBytes = 64;

size_t FileBytes() { return FailPointList().size() * kLineBytes; }

}  // namespace

PassCounts::PassCounts() : counts_(FailPointList().size()) {}

PassCounts::~PassCounts() {
  if (lines_ != nullptr) munmap(lines_, FileBytes());
}

absl::Status PassCounts::Open(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  void* mapped = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(FileBytes())) == 0) {
    mapped = mmap(nullptr, FileBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot count in '", path.string(), "'"));
  }
  lines_ = static_cast<char*>(mapped);
  for (size_t point = 0; point < counts_.size(); ++point) Show(point);
  return absl::OkStatus();
}

void PassCounts::AddPass(size_t point) {
  ++counts_[point].passed;
  Show(point);
}

void PassCounts::AddFire(size_t point) {
  ++counts_[point].fired;
  Show(point);
}

void PassCounts::Show(size_t point) {
  if (lines_ == nullptr) return;
  const std::string_view name = FailPointList()[point].name;
  std::string line = absl::StrFormat("%-30s %15d %15d", std::string(name), counts_[point].passed,
                                     counts_[point].fired);
  line.resize(kLineBytes - 1, ' ');
  line.push_back('\n');
  std::copy(line.begin(), line.end(), lines_ + point * kLineBytes);
}

}  // namespace lathe
