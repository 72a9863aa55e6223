// lathe-worker: loads a base model, attaches to an engine and runs its commands.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/config/option_set.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/logging/logging.h"
#include "libs/common/metrics/host_watch.h"
#include "libs/common/metrics/metrics_server.h"
#include "services/worker/collectives/rendezvous/awaited_rendezvous.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"
#include "services/worker/executor/executor.h"
#include "services/worker/memory/tensor_memory.h"
#include "services/worker/metrics.h"
#include "services/worker/rpc/attach_client.h"
#include "services/worker/rpc/command_conversion.h"
#include "services/worker/rpc/version_client.h"
#include "services/worker/rpc/version_server.h"
#include "services/worker/torch/device_loss.h"
#include "services/worker/torch/gpu_environment.h"
#include "services/worker/torch/thread_waiting.h"
#include "services/worker/worker_options.h"

namespace lathe::worker {
namespace {

// Makes the end of the process an event of the main thread. Any thread or signal may request it.
class ProcessEnd {
 public:
  // Must be constructed before any thread starts.
  ProcessEnd() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  // Any thread. The first request's exit code counts.
  void Request(int exit_code) {
    int none = 0;
    exit_code_.compare_exchange_strong(none, exit_code);
    kill(getpid(), SIGTERM);
  }

  // Blocks until a signal or a request. Returns the exit code.
  int Wait() {
    int signal = 0;
    sigwait(&signals_, &signal);
    return exit_code_;
  }

 private:
  sigset_t signals_;
  std::atomic<int> exit_code_ = 0;
};

// Time that a stopping rank waits for a running unit, or for another rank that hangs.
constexpr absl::Duration kLeavePatience = absl::Seconds(5);

bool IsConfigurationError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
}

absl::Status CheckReady(const ExecutorPort& executor) {
  if (executor.State().ready) return absl::OkStatus();
  return absl::UnavailableError("base model is loading");
}

// Address prefixes of an engine on this machine.
constexpr std::array kHere = {"unix:", "127.", "localhost:", "[::1]:"};

// Versions are sent unencrypted. They leave the machine only if the operator has chosen a network
// for that.
bool MayServeVersions(const WorkerOptions& options, const std::string& engine_address) {
  if (options.rank != 0 || options.role != "train" || options.version_listen == "none")
    return false;
  const bool is_chosen = !options.version_listen.empty() || !options.rendezvous.empty();
  const bool is_near = std::any_of(kHere.begin(), kHere.end(), [&](const char* prefix) {
    return absl::StartsWith(engine_address, prefix);
  });
  return is_chosen || is_near || options.mesh.world() > 1 || options.engine.insecure_i_know;
}

// Returns nullptr if versions go to other groups as files. InvalidArgument: --version-listen is not
// an address of this machine.
absl::StatusOr<std::unique_ptr<VersionServer>> ServeVersions(const WorkerOptions& options,
                                                             const std::string& engine_address,
                                                             ServedVersions& versions) {
  if (!MayServeVersions(options, engine_address)) return nullptr;
  const std::string& place =
      options.version_listen.empty() ? options.rendezvous : options.version_listen;
  absl::StatusOr<std::unique_ptr<VersionServer>> server = absl::UnavailableError("");
  const auto socket = OpenRendezvousSocket(place, engine_address, "--version-listen");
  if (socket.ok()) {
    server = VersionServer::Start(socket->address(), versions);
  } else {
    server = socket.status();
  }
  if (!server.ok()) {
    if (absl::IsInvalidArgument(server.status())) return server.status();
    LogWarn("sampler versions go to other groups as files", {{"why", server.status().message()}});
    return nullptr;
  }
  LogInfo("sampler versions are served", {{"address", (*server)->address().address}});
  return server;
}

// Opens the socket at which the other ranks of the group find rank 0. Returns the exit code of a
// failure.
std::optional<int> OpenRendezvous(const WorkerOptions& options, const std::string& engine_address,
                                  WorkerIdentity& identity, ExecutorPeers& peers) {
  if (identity.world <= 1 || identity.rank != 0) return std::nullopt;
  absl::StatusOr<ListeningSocket> socket = OpenRendezvousSocket(options.rendezvous, engine_address);
  if (!socket.ok()) {
    LogError("the rendezvous socket cannot be opened", {{"error", socket.status().message()}});
    return IsConfigurationError(socket.status()) ? kExitConfiguration : kExitUnavailable;
  }
  identity.address = socket->address();
  identity.port = socket->port();
  peers.socket.emplace(*std::move(socket));
  return std::nullopt;
}

// Returns null if the options name no metrics listener.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const WorkerOptions& options,
                                                            const Executor& executor) {
  if (options.metrics_listen.empty()) return nullptr;
  const char* const files = options.storage.has_objects() ? "cache" : "data";
  auto host_watch = std::make_unique<HostWatch>(
      HostWatch::Options{.directories = {{files, CheckpointRoot(options)}},
                         .certificates = {{"engine_cert", options.engine.tls.cert}}});
  return MetricsServer::Start(options.metrics_listen,
                              MakeWorkerMetrics(executor, std::move(host_watch)),
                              {.is_ready = [&executor] { return CheckReady(executor); }});
}

// Reasons to end that this process found itself. Each text is set before its flag.
struct Failures {
  std::string load_error;
  std::string peer_error;
  std::string device_error;
  std::atomic<bool> load_failed = false;
  std::atomic<bool> peer_is_gone = false;
  std::atomic<bool> device_is_lost = false;
};

// Tells the engine why this process ends, and stops its threads. Ends the process at once if the
// executor's thread may hang.
void Leave(int exit_code, const Failures& failures, VersionClient& version_client,
           Executor& executor, AttachClient& client) {
  if (failures.device_is_lost || failures.peer_is_gone) {
    if (failures.device_is_lost) {
      client.Leave(absl::StrCat("its GPU is lost: ", failures.device_error),
                   LeaveCause::kCannotWork);
    } else {
      client.Leave(failures.peer_error, LeaveCause::kPeerGone);
    }
    client.Stop();
    std::_Exit(exit_code);
  }
  // A load cannot be interrupted, and no state exists yet that is worth waiting for.
  if (!executor.State().ready && !failures.load_failed) std::_Exit(exit_code);
  if (failures.load_failed) {
    client.Leave(failures.load_error, LeaveCause::kCannotWork);
  } else {
    client.Leave("it was asked to stop", LeaveCause::kStopped);
  }
  version_client.Stop();
  const bool has_stopped = executor.TryStop(kLeavePatience);
  if (!has_stopped) LogWarn("the ranks' round has not ended after 5 s; this rank ends without it");
  client.Stop();
  if (!has_stopped) std::_Exit(exit_code);
}

// Ends the process when its GPU is lost. Threads that see the loss wait for the end, so that no
// request fails: the engine runs all of them again.
void EndOnDeviceLoss(Failures& failures, ProcessEnd& end) {
  DeviceLossHandling handling{.probe = ProbeGpu};
  handling.on_lost = [&failures, &end, is_first = std::make_shared<std::atomic<bool>>(true)](
                         const std::string& error) {
    if (is_first->exchange(false)) {
      LogError("the GPU is lost, and this process ends", {{"error", error}});
      failures.device_error = error;
      failures.device_is_lost = true;
      end.Request(kExitTemporary);
    }
    absl::SleepFor(absl::InfiniteDuration());
  };
  SetDeviceLossHandling(std::move(handling));
}

int Run(const WorkerOptions& options) {
  ProcessEnd end;
  WorkerIdentity identity = MakeIdentity(options);
  const AttachOptions attach = MakeAttachOptions(options);
  ExecutorOptions executor_options = MakeExecutorOptions(options);
  absl::StatusOr<ExecutorStorage> storage = OpenStorage(options);
  if (!storage.ok()) {
    LogError("the object store cannot be used", {{"error", storage.status().message()}});
    return kExitConfiguration;
  }
  executor_options.storage = *std::move(storage);
  identity.checkpoint_place = FindCheckpointPlace(options);
  Failures failures;
  EndOnDeviceLoss(failures, end);
  AwaitedRendezvous rendezvous;
  ExecutorPeers peers{
      .await_rendezvous = [&] { return rendezvous.Await(); },
      .decode = DecodeCommand,
      .on_disagreement =
          [&](absl::Status status) {
            LogError("ranks cannot continue together", {{"error", status.message()}});
            failures.peer_error = std::string(status.message());
            failures.peer_is_gone = true;
            end.Request(kExitPeerGone);
          }};
  if (const std::optional<int> exit_code =
          OpenRendezvous(options, attach.engine_addresses.front(), identity, peers)) {
    return *exit_code;
  }
  ServedVersions served_versions;
  const auto served = ServeVersions(options, attach.engine_addresses.front(), served_versions);
  if (!served.ok()) {
    LogError("sampler versions cannot be served", {{"error", served.status().message()}});
    return kExitConfiguration;
  }
  const std::unique_ptr<VersionServer>& version_server = *served;
  if (version_server != nullptr) identity.version_address = version_server->address();
  VersionClient version_client;
  std::unique_ptr<AttachClient> client;
  Executor executor(
      std::move(executor_options),
      {.on_report = [&](ReportEvent event) { client->OnReport(std::move(event)); },
       .on_state_changed = [&] { client->OnStateChanged(); }},
      [&](absl::Status status) {
        LogError("base model cannot be loaded", {{"error", status.message()}});
        failures.load_error = absl::StrCat("base model cannot be loaded: ", status.message());
        failures.load_failed = true;
        end.Request(IsConfigurationError(status) ? kExitConfiguration : kExitUnavailable);
      },
      std::move(peers),
      {.served = version_server != nullptr ? &served_versions : nullptr,
       .reader = options.role == "train" ? nullptr : &version_client});
  client = std::make_unique<AttachClient>(
      attach, identity, executor,
      // Exits at once: the engine has discarded this process, and its work may hang.
      [](const std::string&) { std::_Exit(kExitTemporary); },
      [&](const RendezvousPoint& point) { rendezvous.Set(point); });
  absl::StatusOr<std::unique_ptr<MetricsServer>> metrics = StartMetrics(options, executor);
  if (!metrics.ok()) {
    LogError("metrics page cannot be served", {{"error", metrics.status().message()}});
    return kExitUnavailable;
  }
  client->Start();
  executor.Start();
  const int exit_code = end.Wait();
  Leave(exit_code, failures, version_client, executor, *client);
  metrics->reset();
  return exit_code;
}

}  // namespace
}  // namespace lathe::worker

int main(int argc, char** argv) {
  lathe::DisableMutexChecks();
  lathe::worker::RestartWithSleepingOpenMp(argv);
  lathe::worker::SetGpuEnvironment();
  lathe::worker::UseBlockCacheForTensors();
  lathe::worker::WorkerOptions options = lathe::worker::ParseWorkerOptionsOrExit(argc, argv);
  lathe::InitLogging("worker", options.log_level);
  const lathe::LogLevelReload log_level(options.config_path);
  if (const absl::Status status = lathe::ArmFailPoints("worker"); !status.ok()) {
    lathe::LogError("fail points are refused", {{"error", status.message()}});
    return lathe::kExitConfiguration;
  }
  absl::Status status = lathe::worker::TakeLaunchPlace(options);
  if (status.ok()) status = lathe::worker::Validate(options);
  if (!status.ok()) {
    lathe::LogError("options are refused", {{"error", status.message()}});
    return lathe::kExitConfiguration;
  }
  return lathe::worker::Run(options);
}
