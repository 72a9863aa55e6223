// lathe-engine: owns the ledger, takes all decisions, keeps everything durable.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/concurrency/periodic_task.h"
#include "libs/common/concurrency/thread_stacks.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/logging.h"
#include "libs/common/metrics/metrics_server.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "libs/common/time/steady_time.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/core_watch.h"
#include "services/engine/dispatcher/dispatcher.h"
#include "services/engine/dispatcher/worker_secret.h"
#include "services/engine/leadership/leadership.h"
#include "services/engine/leadership/process_name.h"
#include "services/engine/metrics.h"
#include "services/engine/readiness.h"
#include "services/engine/rpc/accounts_service.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/checkpoints_service.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/servers.h"
#include "services/engine/rpc/streaming_service.h"
#include "services/engine/rpc/tenants_service.h"
#include "services/engine/rpc/traces_service.h"
#include "services/engine/rpc/validate_lora.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/stop_signal.h"
#include "services/engine/store/data_dir_lock.h"
#include "services/engine/store/open_store.h"

namespace lathe::engine {
namespace {

// sysexits.h: EX_IOERR, EX_TEMPFAIL: to be started again.
constexpr int kExitIo = 74;
constexpr int kExitTemporary = 75;
// After a signal, what is left to commit may wait so long for a database that is away.
constexpr absl::Duration kCommitGrace = absl::Seconds(4);

struct Settings {
  std::string store;
  std::string data_dir;
  std::string run_dir;
  std::string event_log;
  std::string log_level;
  std::string metrics_listen;
  absl::Duration gap_timeout;
  absl::Duration session_timeout;
  absl::Duration session_kept;
  absl::Duration model_idle_timeout;
  absl::Duration stuck_after;
  absl::Duration worker_stuck_after;
  int sampler_versions_mib = 0;
  absl::Duration snapshot_interval;
  double snapshot_share = 0;
  int snapshot_log_mib = 0;
  double lora_alpha = 0;
  std::vector<std::string> lora_target_modules;
  ServerOptions servers;
  Leadership::Options leadership;
};

Settings ParseSettings(int argc, char** argv) {
  Settings settings;
  const CoreOptions defaults;
  OptionSet options("lathe-engine", "Orders, schedules and keeps the work of a Lathe service.");
  options.Add(&settings.data_dir, "engine.data_dir", "", "directory of everything durable",
              {.required = true});
  options.Add(&settings.store, "engine.store", "",
              "sqlite:PATH or postgres://…; empty: sqlite:DATA_DIR/lathe.db",
              {.may_hold_password = true});
  options.Add(&settings.run_dir, "engine.run_dir", "",
              "directory of sockets and the workers' secret; empty: DATA_DIR/run");
  options.Add(&settings.servers.grpc_listen, "engine.grpc_listen", "",
              "HOST:PORT of the public gRPC service; empty: none");
  options.Add(&settings.servers.tls.cert, "engine.tls_cert", "",
              "PEM file of grpc_listen's certificate chain; read again when it changes");
  options.Add(&settings.servers.tls.key, "engine.tls_key", "", "PEM file of its private key");
  options.Add(&settings.servers.tls.client_ca, "engine.tls_client_ca", "",
              "PEM file: gRPC clients must show a certificate that one of these has signed");
  options.Add(&settings.servers.allow_insecure, "engine.insecure_i_know", false,
              "lets grpc_listen be an address other machines reach, without TLS");
  options.Add(&settings.servers.reflection, "engine.reflection", false,
              "gRPC reflection on the public service too");
  options.Add(&settings.gap_timeout, "engine.gap_timeout", absl::Nanoseconds(defaults.gap_timeout),
              "how long a forward_backward waits for a smaller seq_id that is missing");
  options.Add(&settings.session_timeout, "engine.session_timeout",
              absl::Nanoseconds(defaults.session_timeout),
              "after this long without heartbeats a session's open gradients are dropped and its "
              "models leave their worker for the disk; its next request brings them back");
  options.Add(&settings.session_kept, "engine.session_kept",
              absl::Nanoseconds(defaults.session_kept),
              "a session ends, and its models and unnamed sampler versions with it, this long "
              "after its last heartbeat; 0s: with the session_timeout");
  options.Add(&settings.model_idle_timeout, "engine.model_idle_timeout",
              absl::Nanoseconds(defaults.model_idle_timeout),
              "after this long without requests a model leaves its worker for the disk with all "
              "it has, although its client is there; 0s: never");
  options.Add(&settings.stuck_after, "engine.stuck_after", absl::Seconds(30),
              "a core that has done nothing for so long is shown in the log, and the engine aborts "
              "to be started again; at least 3s, 0: never");
  options.Add(&settings.worker_stuck_after, "engine.worker_stuck_after", absl::Seconds(120),
              "a busy worker whose work makes no step for so long is killed and started anew; at "
              "least 4s, 0: never");
  options.Add(&settings.leadership.lease, "engine.lease", settings.leadership.lease,
              "with a Postgres store: an engine on another machine, or one that hangs, is replaced "
              "by a standby after so long without a sign of life; 2s to 1m");
  options.Add(&settings.leadership.renewal, "engine.lease_renewal", settings.leadership.renewal,
              "time between two signs of life; 100ms to a third of lease");
  options.Add(&settings.sampler_versions_mib, "engine.sampler_versions_mib",
              static_cast<int>(defaults.sampler_versions_bytes >> 20),
              "MiB of unnamed sampler versions that one tenant's live sessions may hold in their "
              "worker; above it the least recently sampled go, never the newest 4");
  options.Add(&settings.snapshot_interval, "engine.snapshot_interval",
              absl::Nanoseconds(defaults.snapshot_interval),
              "a model that changed is written to disk this often, so that a lost worker costs at "
              "most so much repeated work; 0s: never, everything since its creation is repeated");
  options.Add(&settings.snapshot_share, "engine.snapshot_share", defaults.snapshot_share,
              "share of a worker's time that snapshots may take; they come seldomer above it");
  options.Add(&settings.snapshot_log_mib, "engine.snapshot_log_mib",
              static_cast<int>(defaults.snapshot_log_bytes >> 20),
              "MiB of request bodies kept to repeat a model's work, above which it is written "
              "before its time");
  const LoraDefaults lora;
  options.Add(&settings.lora_alpha, "lora.alpha", lora.alpha,
              "alpha of models whose request names none; alpha / rank scales an adapter",
              {.flag = "lora-alpha"});
  options.Add(&settings.lora_target_modules, "lora.target_modules", lora.target_modules,
              "linears that train_attn, train_mlp and train_unembed stand for, where a request "
              "names no target_modules",
              {.flag = "lora-target-modules"});
  options.Add(&settings.event_log, "engine.event_log", "",
              "file for every event of the core, to replay; empty: none");
  options.Add(&settings.metrics_listen, "metrics.engine_listen", "",
              "HOST:PORT of /metrics, /livez and /readyz, for your own network; empty: none",
              {.flag = "metrics-listen"});
  options.Add(&settings.log_level, "engine.log_level", "info", "debug, info, warn or error");
  options.ParseOrExit(argc, argv);
  return settings;
}

// Prints why the engine cannot run and gives its exit code.
int Fail(const absl::Status& status, int exit_code) {
  LogError("lathe-engine cannot run", {{"error", status.message()}});
  return exit_code;
}

absl::Status MakeDirs(const Settings& settings, const std::filesystem::path& checkpoints_dir) {
  std::error_code error;
  for (const std::filesystem::path& dir :
       {std::filesystem::path(settings.run_dir), checkpoints_dir}) {
    std::filesystem::create_directories(dir, error);
    if (error) {
      return absl::InternalError(
          absl::StrCat("cannot make '", dir.string(), "': ", error.message()));
    }
  }
  return absl::OkStatus();
}

[[noreturn]] void EndReplaced(const absl::Status& status) {
  LogError("another engine leads; this one ends, to be started again as a standby",
           {{"error", status.message()}});
  std::_Exit(kExitTemporary);
}

Runtime::Options RuntimeOptions(const Settings& settings,
                                const std::filesystem::path& checkpoints_dir,
                                EngineMetrics& metrics, const StopSignal& stop) {
  Runtime::Options options;
  options.observers = metrics.MakeObservers();
  options.core.gap_timeout = absl::ToInt64Nanoseconds(settings.gap_timeout);
  options.core.session_timeout = absl::ToInt64Nanoseconds(settings.session_timeout);
  options.core.session_kept = absl::ToInt64Nanoseconds(settings.session_kept);
  options.core.model_idle_timeout = absl::ToInt64Nanoseconds(settings.model_idle_timeout);
  options.core.sampler_versions_bytes = int64_t{settings.sampler_versions_mib} << 20;
  options.core.snapshot_interval = absl::ToInt64Nanoseconds(settings.snapshot_interval);
  options.core.snapshot_share = settings.snapshot_share;
  options.core.snapshot_log_bytes = int64_t{settings.snapshot_log_mib} << 20;
  options.checkpoints_dir = checkpoints_dir;
  options.event_log = settings.event_log;
  options.on_fatal = [&stop](const absl::Status& status) {
    if (absl::IsFailedPrecondition(status)) EndReplaced(status);
    if (absl::IsUnavailable(status) && stop.has_come()) {
      LogWarn("the store is away: what nobody was told is not written",
              {{"error", status.message()}});
      return;
    }
    LogError("the store failed; nothing more can be acknowledged", {{"error", status.message()}});
    std::_Exit(kExitIo);
  };
  return options;
}

// Null: none was asked for.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const Settings& settings,
                                                            const EngineMetrics& metrics,
                                                            Readiness& readiness) {
  if (settings.metrics_listen.empty()) return nullptr;
  ASSIGN_OR_RETURN(
      std::unique_ptr<MetricsServer> server,
      MetricsServer::Start(
          settings.metrics_listen, metrics.registry(), [&readiness] { return readiness.IsReady(); },
          [&readiness] { return readiness.IsLive(); }));
  LogInfo("metrics", {{"address", settings.metrics_listen}, {"port", server->port()}});
  return server;
}

void AbortStuck(absl::Duration limit) {
  LogError("the core has done nothing; the stacks of all threads follow",
           {{"seconds", absl::ToDoubleSeconds(limit)}});
  WriteThreadStacks(STDERR_FILENO);
  std::abort();
}

// SQLite keeps everything in the data directory. A shared store is guarded by a lease, and its
// engines have sockets of their own.
absl::StatusOr<DataDirLock> TakeLock(const Settings& settings) {
  return DataDirLock::Take(IsSharedStore(settings.store) ? settings.run_dir : settings.data_dir);
}

absl::StatusOr<std::string> WorkerSecret(const Settings& settings, Store& store) {
  if (!IsSharedStore(settings.store)) return LoadOrMakeSecret(settings.run_dir);
  ASSIGN_OR_RETURN(const std::string key, store.Secret("worker_secret"));
  return ShareSecret(settings.run_dir, key);
}

// Returns once this engine leads, or a signal has come.
absl::Status StandBy(const Settings& settings, Leadership& leadership, Readiness& readiness,
                     const StopSignal& stop) {
  if (leadership.TryLead()) return absl::OkStatus();
  readiness.Explain("standby");
  ASSIGN_OR_RETURN(
      const StandbyServers servers,
      StandbyServers::Start(settings.servers, [&leadership] { return leadership.leader(); }));
  while (!stop.WaitFor(leadership.LookPeriod())) {
    if (leadership.TryLead()) break;
  }
  readiness.Explain("the engine reads its store");
  return absl::OkStatus();
}

absl::Status StartRuntime(Runtime& runtime, Dispatcher& dispatcher, Store& store,
                          const std::optional<Leadership>& leadership) {
  if (!leadership) return runtime.Start(dispatcher);
  absl::StatusOr<StoredState> state = store.Load(leadership->term());
  if (absl::IsFailedPrecondition(state.status())) EndReplaced(state.status());
  if (!state.ok()) return state.status();
  return runtime.Start(dispatcher, *std::move(state));
}

absl::Status CheckSettings(const Settings& settings) {
  if (settings.sampler_versions_mib < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampler_versions_mib is ", settings.sampler_versions_mib, ", minimum is 0"));
  }
  if (settings.stuck_after != absl::ZeroDuration() && settings.stuck_after < CoreWatch::kMinLimit) {
    return absl::InvalidArgumentError(absl::StrCat("stuck_after is ",
                                                   absl::FormatDuration(settings.stuck_after),
                                                   ", minimum is 3s, or 0 for never"));
  }
  if (settings.worker_stuck_after != absl::ZeroDuration() &&
      settings.worker_stuck_after < absl::Seconds(4)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_stuck_after is ", absl::FormatDuration(settings.worker_stuck_after),
                     ", minimum is 4s, or 0 for never"));
  }
  if (settings.snapshot_interval < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("snapshot_interval is ",
                                                   absl::FormatDuration(settings.snapshot_interval),
                                                   ", minimum is 0s"));
  }
  if (!(settings.snapshot_share > 0 && settings.snapshot_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("snapshot_share is ", settings.snapshot_share,
                                                   ", expected more than 0 and at most 1"));
  }
  RETURN_IF_ERROR(Leadership::Check(settings.leadership));
  if (settings.snapshot_log_mib < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot_log_mib is ", settings.snapshot_log_mib, ", minimum is 1"));
  }
  return absl::OkStatus();
}

int Run(Settings settings, const sigset_t& signals) {
  if (const absl::Status status = CheckSettings(settings); !status.ok()) {
    return Fail(status, kExitConfiguration);
  }
  settings.data_dir = std::filesystem::absolute(settings.data_dir).lexically_normal().string();
  if (settings.run_dir.empty()) settings.run_dir = settings.data_dir + "/run";
  settings.servers.run_dir = settings.run_dir;
  const std::filesystem::path data_dir = settings.data_dir;
  const std::filesystem::path checkpoints_dir = data_dir / "checkpoints";

  if (const absl::Status status = CheckServerOptions(settings.servers); !status.ok()) {
    return Fail(status, kExitConfiguration);
  }
  const absl::StatusOr<LoraDefaults> lora =
      MakeLoraDefaults(settings.lora_alpha, settings.lora_target_modules);
  if (!lora.ok()) return Fail(lora.status(), kExitConfiguration);
  // Nothing is held yet that would be worth waiting for.
  StopSignal stop(signals);
  stop.React([] { std::_Exit(0); });
  const absl::StatusOr<DataDirLock> lock = TakeLock(settings);
  if (!lock.ok()) return Fail(lock.status(), kExitCannotCreate);
  FailPoint("engine.start.locked");
  if (const absl::Status status = MakeDirs(settings, checkpoints_dir); !status.ok()) {
    return Fail(status, kExitCannotCreate);
  }

  const absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(settings.store, data_dir);
  if (absl::IsInvalidArgument(store.status()) || absl::IsFailedPrecondition(store.status())) {
    return Fail(store.status(), kExitConfiguration);
  }
  if (!store.ok()) return Fail(store.status(), kExitUnavailable);
  const absl::StatusOr<std::string> worker_secret = WorkerSecret(settings, **store);
  if (!worker_secret.ok()) return Fail(worker_secret.status(), kExitCannotCreate);
  const absl::StatusOr<std::string> archive_key = (*store)->Secret("archive_signing_key");
  if (!archive_key.ok()) return Fail(archive_key.status(), kExitUnavailable);

  RealClock clock;
  EngineMetrics metrics;
  Readiness readiness;
  const absl::StatusOr<std::unique_ptr<MetricsServer>> metrics_server =
      StartMetrics(settings, metrics, readiness);
  if (!metrics_server.ok()) return Fail(metrics_server.status(), kExitUnavailable);
  stop.React([&store] { (*store)->GiveUp(); });
  std::optional<Leadership> leadership;
  if (IsSharedStore(settings.store)) {
    settings.leadership.process = ThisProcess();
    settings.leadership.address = absl::StrCat("unix:", settings.run_dir, "/engine.sock");
    leadership.emplace(settings.leadership, **store, EndReplaced, SteadyNowWithSleep);
    if (const absl::Status status = StandBy(settings, *leadership, readiness, stop); !status.ok()) {
      return Fail(status, kExitUnavailable);
    }
    if (stop.has_come()) return 0;
    const auto may_speak = [&leadership] { return leadership->MaySpeak(); };
    metrics.AskLeadership(may_speak);
    settings.servers.may_speak = may_speak;
    leadership->StartRenewing();
  }
  KeyRing keys(**store, clock);
  if (const absl::Status status = keys.Refresh(); !status.ok()) {
    return Fail(status, kExitUnavailable);
  }
  Runtime runtime(RuntimeOptions(settings, checkpoints_dir, metrics, stop), **store, clock);
  Dispatcher dispatcher(runtime, *worker_secret, settings.worker_stuck_after);
  ArchiveSigner archives(*archive_key, checkpoints_dir, clock);
  AuditLog audit(**store, clock);
  EngineService engine(runtime, keys, archives, audit, *lora);
  TenantsService tenants(runtime, keys);
  StreamingService streaming(runtime, keys);
  AccountsService accounts(runtime, keys);
  TracesService traces(runtime, keys, *archive_key);
  CheckpointsService checkpoints(runtime, keys, archives, audit);
  AdminService admin(runtime, keys, dispatcher);
  if (const absl::Status status = StartRuntime(runtime, dispatcher, **store, leadership);
      !status.ok()) {
    return Fail(status, kExitUnavailable);
  }
  absl::StatusOr<Servers> servers =
      Servers::Start(settings.servers,
                     {.engine = {&engine, &tenants, &streaming, &checkpoints, &accounts, &traces},
                      .admin = admin,
                      .workers = dispatcher});
  if (!servers.ok()) {
    runtime.Stop();
    return Fail(servers.status(), kExitUnavailable);
  }
  LogInfo("serving", {{"data_dir", settings.data_dir},
                      {"term", runtime.term()},
                      {"grpc_port", servers->grpc_port()}});

  metrics.ShowState(runtime, dispatcher);
  readiness.Follow(&runtime);
  CoreWatch watch(
      settings.stuck_after, [&runtime] { return runtime.CoreIdleTime(); },
      [&settings] { AbortStuck(settings.stuck_after); });
  std::optional<PeriodicTask> watching;
  if (settings.stuck_after > absl::ZeroDuration()) {
    watching.emplace("engine-watch", watch.Period(), [&watch] { watch.Look(); });
  }
  // From here on what was accepted is committed first, if the database can.
  stop.React(nullptr);
  stop.WaitFor(absl::InfiniteDuration());
  LogInfo("stopping");
  const PeriodicTask give_up("engine-give-up", kCommitGrace, [&store] { (*store)->GiveUp(); });
  watching.reset();
  readiness.Follow(nullptr);
  metrics.HideState();
  runtime.ReleaseWaiters();
  dispatcher.EndStreams();
  servers->Shutdown();
  runtime.Stop();
  if (leadership) leadership->Resign();
  LogInfo("stopped");
  return 0;
}

}  // namespace
}  // namespace lathe::engine

int main(int argc, char** argv) {
  lathe::DisableMutexChecks();
  // What the engine writes is its owner's only.
  umask(077);
  lathe::engine::Settings settings = lathe::engine::ParseSettings(argc, argv);
  lathe::InitLogging("engine", settings.log_level);
  if (const absl::Status status = lathe::ArmFailPoints("engine"); !status.ok()) {
    return lathe::engine::Fail(status, lathe::kExitConfiguration);
  }
  // Blocked before any thread starts, so that only StopSignal receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return lathe::engine::Run(std::move(settings), signals);
}
