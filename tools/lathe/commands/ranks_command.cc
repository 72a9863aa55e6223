#include "tools/lathe/commands/ranks_command.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/common/config/option_set.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/errors.h"
#include "libs/common/launch/launch_place.h"
#include "libs/common/rpc/engine_connection.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/announce.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/exit_code.h"
#include "tools/lathe/launch/metrics_pages.h"
#include "tools/lathe/launch/service_children.h"
#include "tools/lathe/launch/start_failure.h"
#include "tools/lathe/launch/supervised_ranks.h"
#include "tools/lathe/launch/supervisor.h"
#include "tools/lathe/program.h"
#include "tools/lathe/signals.h"

namespace lathe::cli {
namespace {

constexpr char kRanksDescription[] =
    "Starts ranks of a worker group on this machine, and starts again those that end. What "
    "follows\n-- goes to each lathe-worker.\n  lathe ranks --ranks 4-7 --engine 10.0.0.1:7001 "
    "--engine-ca ca.crt --engine-cert w.crt\n    --engine-key w.key --data-dir /srv/lathe -- "
    "--tp 8 --model Qwen/Qwen3-8B=./Qwen3-8B";

// Time from SIGTERM to SIGKILL. A rank that stops normally first finishes the running unit of work
// and the staged saves.
constexpr absl::Duration kRankStopGrace = absl::Seconds(10);
// An engine commits accepted requests first, for 4 s at most, and hands over its lease.
constexpr absl::Duration kEngineStopGrace = absl::Seconds(20);
constexpr int64_t kMaxFirst = 1'000'000;
constexpr int kMaxExitCode = 255;
// Age from which a rank counts as ready, so that its restart is not delayed. Only the engine has
// the rank's real state.
constexpr absl::Duration kSettled = absl::Minutes(1);

struct RanksOptions {
  std::string ranks;
  int64_t ranks_per_pod = 0;  // 0: `ranks` gives the ranks
  EngineConnection engine;
  std::string group;
  std::string metrics_listen;  // address of the first rank's page; empty: no pages
  int num_threads = 0;
  DataDirOptions data;
  std::string config_path;  // passed to the workers; empty: none
  std::vector<std::string> worker_arguments;
  int first = 0;
  int count = 0;
  int64_t world = 0;  // number of ranks in all pods; 0: unknown
  absl::Duration drain_timeout;
  int stopped_exit_code = 0;
  bool with_service = false;
  ServiceOptions service;

  // True if engine and gateway run here too.
  bool has_service() const { return with_service && first == 0; }
};

absl::Status RefuseRanks(const std::string& ranks) {
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat(
          "ranks is '", ranks, "', expected a number or FIRST-LAST, at most ", kMaxRanks)),
      "usage", "ranks");
}

absl::Status RefusePod(const std::string& why) {
  return WithDetail(absl::InvalidArgumentError(why), "configuration", "ranks_per_pod");
}

// Derives the ranks of this pod from the environment of its launcher.
absl::Status ReadPod(RanksOptions& options) {
  const int64_t count = options.ranks_per_pod;
  if (count < 0 || count > kMaxRanks) {
    return RefusePod(absl::StrCat("ranks_per_pod is ", count, ", expected 1 to ", kMaxRanks));
  }
  ASSIGN_OR_RETURN(const std::optional<LaunchPlace> pod,
                   FindLaunchPlace([](const char* name) { return std::getenv(name); }));
  if (!pod.has_value()) {
    return RefusePod(
        "ranks_per_pod is given, and no launcher says which pod this is (LATHE_POD_INDEX, "
        "LWS_WORKER_INDEX, JOB_COMPLETION_INDEX, RANK); --ranks says which ranks it has");
  }
  if (pod->local_rank > 0) {
    return RefusePod(absl::StrCat("LOCAL_RANK is ", pod->local_rank,
                                  ": ranks_per_pod is for launchers of one process per pod"));
  }
  options.first = static_cast<int>(pod->rank * count);
  options.count = static_cast<int>(count);
  options.world = pod->world * count;
  return absl::OkStatus();
}

absl::Status ReadRanks(RanksOptions& options) {
  if (options.ranks.empty() == (options.ranks_per_pod == 0)) {
    return WithDetail(absl::InvalidArgumentError("expected either --ranks or --ranks-per-pod"),
                      "usage", "ranks");
  }
  if (options.ranks.empty()) return ReadPod(options);
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(options.ranks, absl::MaxSplits('-', 1));
  int64_t first = 0, last = 0;
  if (!absl::SimpleAtoi(ends.first, &first)) return RefuseRanks(options.ranks);
  if (options.ranks.find('-') == std::string::npos) {
    last = first;
  } else if (!absl::SimpleAtoi(ends.second, &last)) {
    return RefuseRanks(options.ranks);
  }
  if (first < 0 || first > kMaxFirst || last < first || last - first >= kMaxRanks) {
    return RefuseRanks(options.ranks);
  }
  options.first = static_cast<int>(first);
  options.count = static_cast<int>(last - first + 1);
  return absl::OkStatus();
}

// Returns the value of `flag` in the workers' arguments; nullopt if it is not there.
std::optional<std::string> WorkerFlag(const RanksOptions& options, const std::string& flag) {
  const std::vector<std::string>& words = options.worker_arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag) return i + 1 < words.size() ? words[i + 1] : "";
    if (absl::StartsWith(words[i], flag + "=")) return words[i].substr(flag.size() + 1);
  }
  return std::nullopt;
}

// Ranks on one machine cannot share a port.
absl::Status CheckPages(const RanksOptions& options) {
  constexpr char kVariable[] = "LATHE_METRICS__WORKER_LISTEN";
  const bool is_flag = WorkerFlag(options, "--metrics-listen").has_value();
  const bool is_inherited = options.metrics_listen.empty() && std::getenv(kVariable) != nullptr;
  if (options.count == 1 || (!is_flag && !is_inherited)) return absl::OkStatus();
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat(
          is_flag ? "--metrics-listen after --" : kVariable, " is one port for all ", options.count,
          " ranks; given before --, --metrics-listen is the first one's, and the others have the "
          "next ports")),
      "usage", "metrics_listen");
}

// Skips the check if a config file may set the device, since the file is not read here. Ranks on
// different kinds of devices later reject each other.
absl::Status CheckDevices(const RanksOptions& options) {
  std::optional<std::string> device = WorkerFlag(options, "--device");
  const char* const variable = std::getenv("LATHE_WORKER__DEVICE");
  if (!device.has_value() && variable != nullptr) device = variable;
  if (!device.has_value() && !options.config_path.empty()) return absl::OkStatus();
  return CheckVisibleDevices(options.count, device.value_or("auto"));
}

absl::Status CheckNumbers(const RanksOptions& options) {
  const auto refuse = [](const char* field, const std::string& message) {
    return WithDetail(absl::InvalidArgumentError(message), "usage", field);
  };
  if (options.drain_timeout < absl::ZeroDuration()) {
    return refuse("drain_timeout",
                  absl::StrCat("drain_timeout is ", absl::FormatDuration(options.drain_timeout),
                               ", expected 0s or more"));
  }
  if (options.stopped_exit_code < 0 || options.stopped_exit_code > kMaxExitCode) {
    return refuse("stopped_exit_code",
                  absl::StrCat("stopped_exit_code is ", options.stopped_exit_code,
                               ", expected 0 to ", kMaxExitCode));
  }
  if (options.num_threads < 0) {
    return refuse("threads",
                  absl::StrCat("threads is ", options.num_threads, ", expected 0 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RanksOptions> ParseRanksOptions(int argc, const char* const* argv) {
  RanksOptions options;
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv, end, std::string_view("--"));
  if (dashes != end) options.worker_arguments.assign(dashes + 1, end);
  OptionSet set("lathe ranks", kRanksDescription);
  set.Add(&options.ranks, "ranks.ranks", "", "numbers of the ranks, FIRST-LAST");
  set.Add(&options.ranks_per_pod, "ranks.ranks_per_pod", 0,
          "instead of --ranks: number of ranks in every pod of a LeaderWorkerSet "
          "(LWS_WORKER_INDEX), an indexed job (JOB_COMPLETION_INDEX) or another launcher "
          "(LATHE_POD_INDEX and LATHE_POD_COUNT, or RANK); pod 0 has rank 0");
  set.Add(
      &options.drain_timeout, "ranks.drain_timeout", absl::ZeroDuration(),
      "time that other groups get at a stop to take over what the group holds; 0s: the ranks end "
      "at once; a second signal ends it");
  set.Add(&options.stopped_exit_code, "ranks.stopped_exit_code", 0,
          "exit code after a stop signal; 143 tells an indexed job, which counts a pod that ends "
          "with 0 as finished, that the pod has to be started again");
  set.Add(&options.with_service, "ranks.with_service", false,
          "the pod or machine with rank 0 also runs an engine and a gateway, which take their "
          "options from --config and the environment");
  AddServiceOptions(set, options.service);
  AddEngineConnection(set, "ranks", options.engine);
  set.Add(&options.group, "ranks.group", "default", "name of the worker group");
  set.Add(&options.num_threads, "ranks.threads", 0,
          "threads of each rank; 0: its share of this machine's CPUs");
  set.Add(&options.metrics_listen, "ranks.metrics_listen", "",
          "HOST:PORT of the first rank's page with metrics and health; the other ranks use the "
          "next ports; port 0 picks free ones; default: no pages");
  AddDataDirOptions(set, options.data);
  RETURN_IF_ERROR(set.Parse(static_cast<int>(dashes - argv), argv));
  RETURN_IF_ERROR(ReadRanks(options));
  RETURN_IF_ERROR(CheckNumbers(options));
  options.config_path = set.config_path();
  RETURN_IF_ERROR(Check(options.engine));
  RETURN_IF_ERROR(CheckPages(options));
  RETURN_IF_ERROR(CheckDevices(options));
  return options;
}

int NumThreads(const RanksOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options.count);
}

// `place` is the rank's index on this machine. A single rank may use all visible GPUs.
std::vector<std::string> DeviceOf(const RanksOptions& options, int place) {
  if (options.count == 1) return {};
  return {absl::StrCat(kVisibleDevices, "=", VisibleDevice(place))};
}

absl::StatusOr<ChildSpec> SpecOf(const RanksOptions& options, const DataDir& dir, int place,
                                 const std::optional<ListenAddress>& page) {
  const int rank = options.first + place;
  ASSIGN_OR_RETURN(std::string program, FindProgram(ProgramDir(), "lathe-worker"));
  ChildSpec child{.name = absl::StrCat("worker", rank)};
  child.arguments = {std::move(program),
                     "--rank",
                     absl::StrCat(rank),
                     "--group",
                     options.group,
                     "--supervised",
                     "true",
                     "--threads",
                     absl::StrCat(NumThreads(options)),
                     "--data-dir",
                     dir.path().string(),
                     "--run-dir",
                     dir.socket_dir().string()};
  const std::vector<std::string> connection = ToArguments(options.engine);
  child.arguments.insert(child.arguments.end(), connection.begin(), connection.end());
  if (options.world > 0) {
    child.arguments.insert(child.arguments.end(), {"--world", absl::StrCat(options.world)});
  }
  if (page.has_value()) {
    child.arguments.insert(child.arguments.end(), {"--metrics-listen", page->ToString()});
  }
  if (!options.config_path.empty()) {
    child.arguments.insert(child.arguments.end(), {"--config", options.config_path});
  }
  child.arguments.insert(child.arguments.end(), options.worker_arguments.begin(),
                         options.worker_arguments.end());
  child.environment = {absl::StrCat("OMP_NUM_THREADS=", NumThreads(options)),
                       "OMP_WAIT_POLICY=passive"};
  child.overrides = DeviceOf(options, place);
  child.log_path = dir.logs() / absl::StrCat(child.name, ".log");
  return child;
}

absl::Status MakeLogDir(const DataDir& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir.logs(), error);
  if (!error) return absl::OkStatus();
  return WithDetail(absl::InternalError(
                        absl::StrCat("cannot make '", dir.logs().string(), "': ", error.message())),
                    "cannot_create");
}

// Restarts children until a stop signal. Fails if one rejects its options before it was ever ready.
absl::Status Watch(const std::vector<ChildSpec>& children, Signals& signals, Supervisor& supervisor,
                   SupervisedRanks& ranks, Announcer& announcer) {
  std::set<std::string> have_worked;
  while (signals.Wait(std::min(supervisor.UntilNextRestart(), kTrimPeriod)) != SignalEvent::kStop) {
    ranks.KillOnEngineRequest();
    supervisor.TrimLogs();
    for (const ChildSpec& child : children) {
      if (supervisor.Age(child.name) <= kSettled) continue;
      supervisor.MarkReady(child.name);
      have_worked.insert(child.name);
    }
    for (const ChildExit& exit : supervisor.Reap()) {
      ranks.OnExit(exit);
      if (!have_worked.contains(exit.name) && !ExitReason(exit.wait_status).empty()) {
        const auto child =
            std::find_if(children.begin(), children.end(),
                         [&](const ChildSpec& spec) { return spec.name == exit.name; });
        return StartFailure(exit, supervisor, child->log_path);
      }
      announcer.Say(exit.name, absl::StrCat(LostPeer(exit) ? "lost another rank (" : "died (",
                                            DescribeExit(exit.wait_status), "), is started again"));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> started, supervisor.RestartDue());
    for (const std::string& name : started) ranks.OnStarted(name);
  }
  return absl::OkStatus();
}

// Lets other groups take over. Returns true if EndDrain has to follow.
bool DrainGroup(const RanksOptions& options, Signals& signals, Supervisor& supervisor,
                SupervisedRanks& ranks) {
  // An engine that ends with the ranks keeps everything.
  if (options.drain_timeout <= absl::ZeroDuration() || options.has_service()) return false;
  if (options.first == 0) return ranks.Drain(options.drain_timeout, signals);
  // The ranks here end by themselves once rank 0, on another machine, has ended.
  const absl::Time began = SteadyNow();
  while (SteadyNow() - began < options.drain_timeout && supervisor.Reap().empty()) {
    if (signals.Wait(absl::Milliseconds(500)) == SignalEvent::kStop) break;
  }
  return false;
}

// Ends the gateway first, so that its clients get answers, and the engine last.
void StopAll(const RanksOptions& options, std::vector<std::string> started,
             Supervisor& supervisor) {
  const auto take = [&started](const std::string& name) {
    const auto found = std::find(started.begin(), started.end(), name);
    const bool is_there = found != started.end();
    if (is_there) started.erase(found);
    return is_there;
  };
  const bool has_engine = take(kServiceEngine);
  if (take(kServiceGateway)) supervisor.Stop({kServiceGateway}, options.service.GatewayGrace());
  supervisor.Stop(started, kRankStopGrace);
  if (has_engine) supervisor.Stop({kServiceEngine}, kEngineStopGrace);
}

}  // namespace

absl::Status RanksCommand(int argc, const char* const* argv) {
  Signals signals;
  Announcer announcer;
  ASSIGN_OR_RETURN(RanksOptions options, ParseRanksOptions(argc, argv));
  const DataDir dir = OpenDataDir(options.data);
  RETURN_IF_ERROR(MakeLogDir(dir));
  EngineConnection& engine = options.engine;
  if (engine.addresses.empty()) engine.addresses = {dir.SocketAddress("worker")};
  // Empty: the engine of this pod makes it.
  const std::string given_secret = engine.secret_file;
  if (engine.secret_file.empty()) engine.secret_file = (dir.socket_dir() / "secret").string();
  std::vector<ListenAddress> pages;
  if (!options.metrics_listen.empty()) {
    ASSIGN_OR_RETURN(pages, ClaimMetricsPages(options.metrics_listen, options.count, 0));
  }
  RealClock clock;
  Supervisor supervisor(clock);
  std::map<std::string, int64_t> numbers;
  std::vector<ChildSpec> children;
  if (options.has_service()) {
    ASSIGN_OR_RETURN(children, ServiceChildren(dir, options.config_path, given_secret));
  }
  const size_t num_service = children.size();
  for (int place = 0; place < options.count; ++place) {
    std::optional<ListenAddress> page;
    if (!pages.empty()) page = pages[place];
    ASSIGN_OR_RETURN(children.emplace_back(), SpecOf(options, dir, place, page));
    numbers[children.back().name] = options.first + place;
  }
  SupervisedRanks ranks({.addresses = engine.addresses,
                         .tls = engine.tls,
                         .secret_file = engine.secret_file,
                         .group = options.group},
                        numbers, supervisor, announcer);
  absl::Status status;
  std::vector<std::string> started;
  for (size_t i = 0; i < children.size() && status.ok(); ++i) {
    const ChildSpec& child = children[i];
    started.push_back(child.name);
    status = supervisor.Start(child);
    if (!status.ok()) break;
    ranks.OnStarted(child.name);
    announcer.Say(child.name, absl::StrCat("started, its log is ", child.log_path.string()));
    if (!pages.empty() && i >= num_service) {
      announcer.Say("metrics",
                    absl::StrCat(child.name, " ", pages[i - num_service].Url(), "/metrics"));
    }
  }
  if (status.ok()) status = Watch(children, signals, supervisor, ranks, announcer);
  const bool is_drained = status.ok() && DrainGroup(options, signals, supervisor, ranks);
  StopAll(options, started, supervisor);
  if (is_drained) ranks.EndDrain();
  if (!status.ok() || options.stopped_exit_code == 0) return status;
  return EndWith(options.stopped_exit_code);
}

}  // namespace lathe::cli
