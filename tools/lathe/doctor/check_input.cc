#include <sys/file.h>
#include <unistd.h>

#include <fcntl.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tools/lathe/doctor/check.h"

namespace lathe::cli {
namespace {

bool IsLocked(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  close(fd);
  return !is_free;
}

}  // namespace

std::string CheckInput::Option(const std::string& key) const {
  const auto found = options.find(key);
  return found == options.end() ? "" : found->second;
}

std::vector<std::string> CheckInput::List(const std::string& key) const {
  return absl::StrSplit(Option(key), ',', absl::SkipWhitespace());
}

std::string CheckInput::Section() const {
  switch (role) {
    case Role::kUp:
      return "up";
    case Role::kEngine:
      return "engine";
    case Role::kGateway:
      return "gateway";
    case Role::kWorker:
      return "worker";
    case Role::kRanks:
      return "ranks";
  }
  return "";
}

std::string CheckInput::WorkerSection() const { return role == Role::kUp ? "up" : "worker"; }

int CheckInput::Number(const std::string& key) const {
  int number = 1;
  const std::vector<std::string> items = List(key);
  if (items.empty() || !absl::SimpleAtoi(items.front(), &number) || number < 1) return 1;
  return number;
}

int CheckInput::NumRanks() const {
  if (role == Role::kUp) {
    return Number("up.dp") * Number("up.fsdp") * Number("up.tp") * Number("up.groups");
  }
  if (role != Role::kRanks) return 1;
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(Option("ranks.ranks"), absl::MaxSplits('-', 1));
  int first = 0;
  int last = 0;
  if (!absl::SimpleAtoi(ends.first, &first)) return Number("ranks.ranks_per_pod");
  return absl::SimpleAtoi(ends.second, &last) ? last - first + 1 : 1;
}

std::string CheckInput::DataDirPath() const {
  const std::string shared = Option("data.dir");
  return shared.empty() ? Option(absl::StrCat(Section(), ".data_dir")) : shared;
}

DataDir CheckInput::Data() const {
  const std::string shared = Option("data.run_dir");
  return DataDir(DataDirPath(),
                 shared.empty() ? Option(absl::StrCat(Section(), ".run_dir")) : shared);
}

std::string CheckInput::Store() const { return Option(absl::StrCat(Section(), ".store")); }

bool CheckInput::IsSqlite() const {
  const std::string store = Store();
  return (role == Role::kUp || role == Role::kEngine) &&
         (store.empty() || absl::StartsWith(store, "sqlite:"));
}

bool CheckInput::IsRunning() const {
  // The locks of `lathe up` and of an engine.
  return IsLocked(Data().run() / "lock") || IsLocked(Data().path() / "engine.lock") ||
         IsLocked(Data().socket_dir() / "engine.lock");
}

std::string GibText(double bytes) {
  constexpr double kGib = 1 << 30;
  return absl::StrFormat(bytes < 10 * kGib ? "%.1f GiB" : "%.0f GiB", bytes / kGib);
}

}  // namespace lathe::cli
