#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/memory/process_memory.h"
#include "tools/lathe/doctor/check.h"

namespace lathe::cli {
namespace {

constexpr double kMibBytes = 1 << 20;
constexpr double kLeastMemory = 512 * kMibBytes;
constexpr double kGoodMemory = 2048 * kMibBytes;
constexpr double kMuchSwap = 256 * kMibBytes;
constexpr int64_t kOtherFiles = 512;  // what a process opens besides connections
constexpr int64_t kLeastProcesses = 512;
constexpr double kSharedMemoryPerRank = 1024 * kMibBytes;

std::string ReadFirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the cores that the cgroup of this machine or container may use; nullopt: all.
std::optional<double> CpuQuota(const std::filesystem::path& root) {
  const std::filesystem::path cgroup = root / "sys/fs/cgroup";
  double quota = 0;
  double period = 0;
  const std::vector<std::string> v2 = absl::StrSplit(ReadFirstLine(cgroup / "cpu.max"), ' ');
  if (v2.size() == 2 && absl::SimpleAtod(v2[0], &quota) && absl::SimpleAtod(v2[1], &period)) {
    return quota / period;
  }
  if (absl::SimpleAtod(ReadFirstLine(cgroup / "cpu/cpu.cfs_quota_us"), &quota) && quota > 0 &&
      absl::SimpleAtod(ReadFirstLine(cgroup / "cpu/cpu.cfs_period_us"), &period)) {
    return quota / period;
  }
  return std::nullopt;
}

std::vector<Finding> CheckCpuFeatures(const CheckInput&) {
  if (__builtin_cpu_supports("avx512f") != 0) {
    return {{.found = __builtin_cpu_supports("avx512bf16") != 0 ? "AVX-512 with bf16" : "AVX-512"}};
  }
  if (__builtin_cpu_supports("avx2") != 0) return {{.found = "AVX2"}};
  return {{.state = CheckState::kWarning,
           .found = "neither AVX2 nor AVX-512",
           .expected = "one of them",
           .remedy = "let the virtual machine pass on the host's CPU (QEMU: -cpu host), or use "
                     "another machine for workers"}};
}

std::vector<Finding> CheckCpus(const CheckInput& input) {
  const unsigned int cpus = std::max(1U, std::thread::hardware_concurrency());
  const std::optional<double> quota = CpuQuota(input.root);
  if (!quota) return {{.found = absl::StrCat(cpus, " CPUs")}};
  std::string found = absl::StrFormat("%d CPUs, a cgroup allows %.1f of them", cpus, *quota);
  if (*quota >= 1 && *quota * 2 >= cpus) return {{.found = std::move(found)}};
  return {{.state = CheckState::kWarning,
           .found = std::move(found),
           .expected = "at least one core, and threads for no more than the quota",
           .remedy = "raise the CPU limit of the container, or set the option `threads` to it"}};
}

std::vector<Finding> CheckFreeMemory(const CheckInput& input) {
  const absl::StatusOr<int64_t> available = AvailableMemoryBytes(input.root);
  if (!available.ok()) {
    return {{.state = CheckState::kSkipped, .found = std::string(available.status().message())}};
  }
  const auto bytes = static_cast<double>(*available);
  const std::string found = absl::StrCat(GibText(bytes), " available");
  if (bytes >= kGoodMemory) return {{.found = found}};
  return {{.state = bytes < kLeastMemory ? CheckState::kError : CheckState::kWarning,
           .found = found,
           .expected = "at least 2 GiB, 0.5 GiB to start",
           .remedy = "end other programs, or raise the memory limit of the container"}};
}

std::vector<Finding> CheckSwap(const CheckInput& input) {
  std::ifstream file(input.root / "proc/meminfo");
  std::string word;
  double total = 0;
  double unused = 0;
  while (file >> word) {
    if (word == "SwapTotal:") file >> total;
    if (word == "SwapFree:") file >> unused;
  }
  const double used = (total - unused) * 1024;
  if (used < kMuchSwap) return {{.found = absl::StrCat(GibText(used), " swapped out")}};
  return {{.state = CheckState::kWarning,
           .found = absl::StrCat(GibText(used), " swapped out"),
           .expected = "less than 0.25 GiB",
           .remedy = "end other programs, or give workers less memory (up.memory_share)"}};
}

std::vector<Finding> CheckOpenFiles(const CheckInput& input) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  int64_t connections = 0;
  if (!absl::SimpleAtoi(input.Option("gateway.max_connections"), &connections)) connections = 1024;
  const auto needed = static_cast<rlim_t>(connections + kOtherFiles);
  // The gateway raises its limit to the hard one.
  const std::string found = absl::StrCat(limit.rlim_max, " open files");
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= needed) return {{.found = found}};
  return {{.state = limit.rlim_max < kOtherFiles ? CheckState::kError : CheckState::kWarning,
           .found = found,
           .expected = absl::StrCat("at least ", needed),
           .remedy = absl::StrCat("ulimit -Hn ", needed,
                                  " (systemd: LimitNOFILE, Docker: --ulimit "
                                  "nofile)")}};
}

std::vector<Finding> CheckProcesses(const CheckInput& input) {
  int64_t most = 0;
  const std::string limit = ReadFirstLine(input.root / "sys/fs/cgroup/pids.max");
  if (!absl::SimpleAtoi(limit, &most)) return {{.found = "no limit of threads"}};
  const std::string found = absl::StrCat("at most ", most, " threads");
  if (most >= kLeastProcesses) return {{.found = found}};
  return {{.state = CheckState::kWarning,
           .found = found,
           .expected = absl::StrCat("at least ", kLeastProcesses),
           .remedy = "raise the limit of the container (Docker: --pids-limit)"}};
}

std::vector<Finding> CheckSharedMemory(const CheckInput& input) {
  const std::string section = input.WorkerSection();
  const int ranks = input.role == Role::kRanks
                        ? input.NumRanks()
                        : input.Number(section + ".dp") * input.Number(section + ".fsdp") *
                              input.Number(section + ".tp");
  if (ranks < 2 || input.Option(section + ".device") == "cpu") {
    return {{.state = CheckState::kSkipped, .found = "only ranks on GPUs share memory"}};
  }
  struct statvfs info {};
  const std::filesystem::path path = input.root / "dev/shm";
  if (statvfs(path.c_str(), &info) != 0) {
    return {{.state = CheckState::kWarning,
             .found = "no /dev/shm",
             .expected = "1 GiB for each rank",
             .remedy = "mount a tmpfs there"}};
  }
  const double size = static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
  const double needed = kSharedMemoryPerRank * static_cast<double>(ranks);
  if (size >= needed) return {{.found = GibText(size)}};
  return {{.state = CheckState::kWarning,
           .found = GibText(size),
           .expected = absl::StrCat("1 GiB for each of ", ranks, " ranks"),
           .remedy = "Docker: --shm-size; Kubernetes: an emptyDir with medium Memory at /dev/shm"}};
}

std::vector<Finding> CheckClock(const CheckInput& input) {
  timex state{};
  const int answer = adjtimex(&state);
  if (answer < 0) {
    return {{.state = CheckState::kSkipped, .found = "the kernel does not say"}};
  }
  if ((state.status & STA_UNSYNC) == 0 && answer != TIME_ERROR) {
    return {{.found = "synchronised"}};
  }
  if (input.IsSqlite())
    return {{.found = "not synchronised, which one machine alone does not need"}};
  return {{.state = CheckState::kWarning,
           .found = "not synchronised",
           .expected = "synchronised with the other machines",
           .remedy = "start chrony or systemd-timesyncd on the host"}};
}

}  // namespace

const std::vector<DoctorCheck>& HostChecks() {
  static const auto& checks = *new std::vector<DoctorCheck>{
      {.name = "host.cpu_features",
       .why = "workers on CPUs have kernels for AVX2 and AVX-512",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckCpuFeatures},
      {.name = "host.cpus", .why = "too many threads slow each other down", .run = CheckCpus},
      {.name = "host.memory",
       .why = "the kernel ends processes without memory",
       .run = CheckFreeMemory},
      {.name = "host.swap", .why = "a worker that is swapped out looks dead", .run = CheckSwap},
      {.name = "host.open_files", .why = "each connection is an open file", .run = CheckOpenFiles},
      {.name = "host.processes",
       .why = "each process has some dozens of threads",
       .run = CheckProcesses},
      {.name = "host.shared_memory",
       .why = "ranks on GPUs exchange data there",
       .roles = {Role::kUp, Role::kWorker, Role::kRanks},
       .run = CheckSharedMemory},
      {.name = "host.clock",
       .why = "certificates, keys and time limits depend on it",
       .run = CheckClock},
  };
  return checks;
}

}  // namespace lathe::cli
