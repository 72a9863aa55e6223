#include "tools/lathe/launch/supervisor.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "libs/common/status_macros.h"

namespace lathe::cli {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(10);

absl::Duration Backoff(int early_deaths) {
  if (early_deaths == 0) return absl::ZeroDuration();
  const int doublings = std::min(early_deaths - 1, 16);
  return std::min(kFirstBackoff * (1 << doublings), kLongestBackoff);
}

bool IsKilled(int wait_status) {
  return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
}

// Number of processes that the kernel has killed for memory, in any cgroup. 0 if unknown.
int64_t NumOomKills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  int64_t count = 0;
  while (file >> name >> count) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

std::streamoff FileSize(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::streamoff>(size);
}

}  // namespace

absl::Status Supervisor::Start(ChildSpec spec) {
  children_.push_back({.spec = std::move(spec)});
  return Spawn(children_.back());
}

absl::Status Supervisor::Spawn(Child& child) {
  child.log_start = FileSize(child.spec.log_path);
  ASSIGN_OR_RETURN(child.pid, SpawnChild(child.spec));
  child.is_running = true;
  child.is_ready = false;
  child.is_asked_to_end = false;
  child.oom_kills = NumOomKills();
  child.started = clock_.Now();
  child.restart_at.reset();
  return absl::OkStatus();
}

bool Supervisor::HasEnded(const Child& child, int& wait_status) {
  return waitpid(child.pid, &wait_status, WNOHANG) == child.pid;
}

std::vector<ChildExit> Supervisor::Reap() {
  std::vector<ChildExit> exits;
  for (Child& child : children_) {
    int wait_status = 0;
    if (!child.is_running || !HasEnded(child, wait_status)) continue;
    child.early_deaths = child.is_ready ? 0 : child.early_deaths + 1;
    const absl::Duration wait = Backoff(child.early_deaths);
    exits.push_back({.name = child.spec.name,
                     .wait_status = wait_status,
                     .was_ready = child.is_ready,
                     .early_deaths = child.early_deaths,
                     .pid = child.pid,
                     .was_asked = child.is_asked_to_end && IsKilled(wait_status),
                     .is_out_of_memory = IsKilled(wait_status) && NumOomKills() > child.oom_kills,
                     .restart_in = wait});
    child.is_running = false;
    child.is_ready = false;
    child.restart_at = clock_.Now() + wait;
  }
  return exits;
}

absl::StatusOr<std::vector<std::string>> Supervisor::RestartDue() {
  std::vector<std::string> started;
  for (Child& child : children_) {
    if (!child.restart_at || *child.restart_at > clock_.Now()) continue;
    RETURN_IF_ERROR(Spawn(child));
    started.push_back(child.spec.name);
  }
  return started;
}

absl::Duration Supervisor::UntilNextRestart() const {
  absl::Duration wait = absl::InfiniteDuration();
  for (const Child& child : children_) {
    if (child.restart_at) wait = std::min(wait, *child.restart_at - clock_.Now());
  }
  return std::max(wait, absl::ZeroDuration());
}

void Supervisor::MarkReady(const std::string& name) {
  Find(name).is_ready = true;
  Find(name).early_deaths = 0;
}

bool Supervisor::IsReady(const std::string& name) const { return Find(name).is_ready; }

bool Supervisor::AllReady() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.is_ready; });
}

absl::Duration Supervisor::Age(const std::string& name) const {
  const Child& child = Find(name);
  return child.is_running ? clock_.Now() - child.started : absl::ZeroDuration();
}

pid_t Supervisor::Pid(const std::string& name) const { return Find(name).pid; }

std::string Supervisor::LogTail(const std::string& name, std::size_t max_bytes) const {
  const Child& child = Find(name);
  const std::streamoff start = std::max(
      child.log_start, FileSize(child.spec.log_path) - static_cast<std::streamoff>(max_bytes));
  std::ifstream file(child.spec.log_path, std::ios::binary);
  file.seekg(start);
  std::string tail{std::istreambuf_iterator<char>(file), {}};
  if (start > child.log_start) tail.erase(0, tail.find('\n') + 1);
  return tail;
}

void Supervisor::TrimLogs(std::uintmax_t max_bytes) {
  for (Child& child : children_) {
    if (TrimLog(child.spec.log_path, max_bytes)) child.log_start = 0;
  }
}

void Supervisor::Kill(const std::string& name, pid_t pid) {
  Child& child = Find(name);
  if (!child.is_running || child.pid != pid) return;
  child.is_asked_to_end = true;
  kill(pid, SIGKILL);
}

void Supervisor::Stop(const std::vector<std::string>& names, absl::Duration grace) {
  std::vector<const Child*> stopping;
  for (const std::string& name : names) {
    Child& child = Find(name);
    child.restart_at.reset();
    child.is_ready = false;
    if (!std::exchange(child.is_running, false)) continue;
    kill(child.pid, SIGTERM);
    stopping.push_back(&child);
  }
  const absl::Time deadline = absl::Now() + grace;
  int wait_status;
  while (true) {
    std::erase_if(stopping, [&](const Child* child) { return HasEnded(*child, wait_status); });
    if (stopping.empty()) return;
    if (absl::Now() >= deadline) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  for (const Child* child : stopping) {
    kill(child->pid, SIGKILL);
    waitpid(child->pid, &wait_status, 0);
  }
}

const Supervisor::Child& Supervisor::Find(const std::string& name) const {
  return *std::find_if(children_.begin(), children_.end(),
                       [&](const Child& child) { return child.spec.name == name; });
}

Supervisor::Child& Supervisor::Find(const std::string& name) {
  return const_cast<Child&>(std::as_const(*this).Find(name));
}

}  // namespace lathe::cli
