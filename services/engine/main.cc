// lathe-engine: owns the ledger, makes all decisions and keeps all durable state.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/concurrency/mutex_checks.h"
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/concurrency/thread_stacks.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/fail_point/fail_point.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/logging/logging.h"
#include "libs/common/metrics/host_watch.h"
#include "libs/common/metrics/metrics_server.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "services/engine/auth/admin_key.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/core_watch.h"
#include "services/engine/dispatcher/dispatcher.h"
#include "services/engine/leadership/leadership.h"
#include "services/engine/leadership/process_name.h"
#include "services/engine/metrics.h"
#include "services/engine/one_task.h"
#include "services/engine/open_data.h"
#include "services/engine/readiness.h"
#include "services/engine/rpc/accounts_service.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/checkpoints_service.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/events_stream.h"
#include "services/engine/rpc/groups_service.h"
#include "services/engine/rpc/machine_series.h"
#include "services/engine/rpc/metrics_service.h"
#include "services/engine/rpc/servers.h"
#include "services/engine/rpc/sign_in_service.h"
#include "services/engine/rpc/streaming_service.h"
#include "services/engine/rpc/tenants_service.h"
#include "services/engine/rpc/traces_service.h"
#include "services/engine/rpc/users_service.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/settings.h"
#include "services/engine/stop_signal.h"
#include "services/engine/store/database_view.h"
#include "services/engine/store/transaction_watch.h"

namespace lathe::engine {
namespace {

// After a signal, the longest time for which pending commits wait for an unavailable database.
constexpr absl::Duration kCommitGrace = absl::Seconds(4);

[[noreturn]] void EndReplaced(const absl::Status& status) {
  LogError("another engine leads; this engine ends and has to be started again as a standby",
           {{"error", status.message()}});
  std::_Exit(kExitTemporary);
}

Runtime::Options RuntimeOptions(const Settings& settings,
                                const std::filesystem::path& checkpoints_dir,
                                const StoredCheckpoints& stored_checkpoints, EngineMetrics& metrics,
                                Tracer* tracer, const StopSignal& stop) {
  Runtime::Options options;
  options.tracer = tracer;
  options.observers = metrics.MakeObservers();
  options.core.gap_timeout = absl::ToInt64Nanoseconds(settings.gap_timeout);
  options.core.session_timeout = absl::ToInt64Nanoseconds(settings.session_timeout);
  options.core.session_kept = absl::ToInt64Nanoseconds(settings.session_kept);
  options.core.model_idle_timeout = absl::ToInt64Nanoseconds(settings.model_idle_timeout);
  options.core.group_lost_timeout = absl::ToInt64Nanoseconds(settings.group_lost_timeout);
  options.core.sampler_versions_bytes = int64_t{settings.sampler_versions_mib} << 20;
  options.core.snapshot_interval = absl::ToInt64Nanoseconds(settings.snapshot_interval);
  options.core.snapshot_share = settings.snapshot_share;
  options.core.snapshot_log_bytes = int64_t{settings.snapshot_log_mib} << 20;
  options.core.max_sessions_per_tenant = settings.max_sessions_per_tenant;
  options.core.max_samplers_per_tenant = settings.max_samplers_per_tenant;
  options.core.max_unfetched_results_per_tenant = settings.max_unfetched_results_per_tenant;
  options.core.max_unfetched_bytes_per_tenant = settings.max_unfetched_bytes_per_tenant;
  options.core.max_unfetched_results_total = settings.max_unfetched_results_total;
  options.checkpoints_dir = checkpoints_dir;
  options.stored_checkpoints = stored_checkpoints;
  options.trash_kept = settings.trash_kept;
  options.series = settings.series;
  options.on_fatal = [&stop](const absl::Status& status) {
    if (absl::IsFailedPrecondition(status)) EndReplaced(status);
    if (absl::IsUnavailable(status) && stop.has_come()) {
      LogWarn("the store is unavailable: unacknowledged writes are dropped",
              {{"error", status.message()}});
      return;
    }
    LogError("the store failed; nothing more can be acknowledged", {{"error", status.message()}});
    std::_Exit(kExitIo);
  };
  return options;
}

// Returns null if the settings name no metrics listener.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const Settings& settings,
                                                            EngineMetrics& metrics,
                                                            Readiness& readiness) {
  if (settings.metrics_listen.empty()) return nullptr;
  metrics.SetHostWatch(std::make_unique<HostWatch>(
      HostWatch::Options{.directories = {{"data", settings.data_dir}},
                         .certificates = {{"tls_cert", settings.servers.tls.cert}}}));
  ASSIGN_OR_RETURN(
      std::unique_ptr<MetricsServer> server,
      MetricsServer::Start(settings.metrics_listen, metrics.registry(),
                           {.is_ready = [&readiness] { return readiness.IsReady(); },
                            .is_live = [&readiness] { return readiness.IsLive(); },
                            .is_serving = [&readiness] { return readiness.IsServing(); },
                            .has_started = [&readiness] { return readiness.HasStarted(); }}));
  LogInfo("metrics", {{"address", settings.metrics_listen}, {"port", server->port()}});
  return server;
}

void AbortStuck(absl::Duration limit) {
  LogError("the core has handled no event; the stacks of all threads follow",
           {{"seconds", absl::ToDoubleSeconds(limit)}});
  WriteThreadStacks(STDERR_FILENO);
  std::abort();
}

void WarnOfTransaction(const OpenTransaction& transaction) {
  LogWarn("a transaction stays open in the database; removed rows keep their space until it ends",
          {{"holder", transaction.holder}, {"seconds", absl::ToDoubleSeconds(transaction.age)}});
}

// Refuses calls as a standby until this engine leads, or a signal has come.
absl::Status AwaitLead(const Settings& settings, Leadership& leadership, const StopSignal& stop) {
  ASSIGN_OR_RETURN(
      const StandbyServers servers,
      StandbyServers::Start(settings.servers, [&leadership] { return leadership.leader(); }));
  while (!stop.WaitFor(leadership.LookPeriod())) {
    if (leadership.TryLead()) break;
  }
  return absl::OkStatus();
}

// Returns once this engine leads, or a signal has come.
absl::Status StandBy(const Settings& settings, Leadership& leadership, Readiness& readiness,
                     const StopSignal& stop) {
  if (leadership.TryLead()) return absl::OkStatus();
  readiness.Explain("standby");
  readiness.FollowStandby(&leadership);
  const absl::Status status = AwaitLead(settings, leadership, stop);
  readiness.FollowStandby(nullptr);
  readiness.Explain("the engine reads its store");
  return status;
}

// Returns the exit code of a failure.
std::optional<int> StartRuntime(Runtime& runtime, Dispatcher& dispatcher, Store& store,
                                const std::optional<Leadership>& leadership) {
  const absl::Status status = [&]() -> absl::Status {
    if (!leadership) return runtime.Start(dispatcher);
    absl::StatusOr<StoredState> state = store.Load(leadership->term());
    if (absl::IsFailedPrecondition(state.status())) EndReplaced(state.status());
    if (!state.ok()) return state.status();
    return runtime.Start(dispatcher, *std::move(state));
  }();
  if (status.ok()) return std::nullopt;
  return Fail(status, absl::IsFailedPrecondition(status) ? kExitConfiguration : kExitUnavailable);
}

// Migrates the store as its leader. If that fails, an engine of the release before may lead.
// Returns the exit code of a failure.
std::optional<int> Migrate(Store& store, Leadership& leadership, Readiness& readiness,
                           const StopSignal& stop) {
  readiness.Explain("the engine migrates its store");
  const absl::Status status = store.Migrate(leadership.term());
  readiness.Explain("the engine reads its store");
  if (status.ok()) return std::nullopt;
  if (absl::IsAborted(status)) EndReplaced(status);
  leadership.Resign();
  if (stop.has_come()) return 0;
  return Fail(status, absl::IsUnavailable(status) ? kExitUnavailable : kExitConfiguration);
}

// For a shared store: waits until this engine leads, then renews the lease and migrates the store.
// Returns the exit code of a process that never leads.
std::optional<int> Lead(Settings& settings, Store& store, EngineMetrics& metrics,
                        Readiness& readiness, const StopSignal& stop,
                        std::optional<Leadership>& leadership) {
  if (!IsSharedStore(settings.store)) return std::nullopt;
  settings.leadership.process = ThisProcess();
  settings.leadership.address = absl::StrCat("unix:", settings.run_dir, "/engine.sock");
  leadership.emplace(settings.leadership, store, EndReplaced, SteadyNowWithSleep);
  if (const absl::Status status = StandBy(settings, *leadership, readiness, stop); !status.ok()) {
    return Fail(status, kExitUnavailable);
  }
  if (stop.has_come()) return 0;
  const auto may_speak = [&leadership] { return leadership->MaySpeak(); };
  metrics.SetLeadershipCheck(may_speak);
  settings.servers.may_speak = may_speak;
  leadership->StartRenewing();
  return Migrate(store, *leadership, readiness, stop);
}

// Looks periodically at the core, which may hang, and at old transactions of a shared store.
class Watches {
 public:
  Watches(const Settings& settings, const Runtime& runtime, Store& store, EngineMetrics& metrics)
      : core_(
            settings.stuck_after, [&runtime] { return runtime.CoreIdleTime(); },
            [&settings] { AbortStuck(settings.stuck_after); }),
        transactions_(
            store, [&metrics](absl::Duration age) { metrics.OnOldestTransaction(age); },
            WarnOfTransaction) {
    if (settings.stuck_after > absl::ZeroDuration()) {
      core_task_.emplace("engine-watch", core_.Period(), [this] { core_.Look(); });
    }
    if (IsSharedStore(settings.store)) {
      transactions_task_.emplace("engine-transactions", TransactionWatch::kPeriod,
                                 [this] { transactions_.Look(); });
    }
  }

 private:
  CoreWatch core_;
  TransactionWatch transactions_;
  std::optional<PeriodicTask> core_task_;
  std::optional<PeriodicTask> transactions_task_;
};

void LogServing(const Settings& settings, const Runtime& runtime, const Servers& servers) {
  LogInfo("serving", {{"data_dir", settings.data_dir},
                      {"term", runtime.term()},
                      {"grpc_port", servers.grpc_port()},
                      {"worker_port", servers.worker_port()}});
}

void ShowServing(const Settings& settings, Runtime& runtime, Dispatcher& dispatcher,
                 const Servers& servers, EngineMetrics& metrics, Readiness& readiness) {
  LogServing(settings, runtime, servers);
  metrics.ShowState(runtime, dispatcher);
  readiness.Follow(&runtime);
}

// Reads the keys, and makes the first admin key. Returns the exit code of a failure.
std::optional<int> LoadKeys(const Settings& settings, KeyRing& keys) {
  absl::Status status = keys.Refresh();
  if (!status.ok()) return Fail(status, kExitUnavailable);
  if (settings.admin_key_file.empty()) return std::nullopt;
  status = EnsureAdminKey(keys, settings.admin_key_file);
  if (status.ok()) return std::nullopt;
  if (absl::IsInvalidArgument(status)) return Fail(status, kExitConfiguration);
  return Fail(status, absl::IsInternal(status) ? kExitCannotCreate : kExitUnavailable);
}

// From here on, a signal lets accepted requests be committed first, if the database is available.
void AwaitSignal(StopSignal& stop) {
  stop.React(nullptr);
  stop.WaitFor(absl::InfiniteDuration());
  LogInfo("stopping");
}

// Ends the calls and streams that would keep the servers from shutting down.
void EndCalls(Runtime& runtime, Dispatcher& dispatcher, EventsService& events) {
  runtime.ReleaseWaiters();
  dispatcher.EndStreams();
  events.EndStreams();
  runtime.checkpoint_dirs().EndCalls();
}

int Run(Settings settings, const sigset_t& signals) {
  // The process holds nothing yet, so a signal may end it at once.
  StopSignal stop(signals);
  stop.React([] { std::_Exit(0); });
  Opened opened;
  if (const std::optional<int> exit_code = Open(settings, opened)) return *exit_code;
  Store& store = *opened.store;
  RealClock clock;
  const std::unique_ptr<Tracer> tracer = MakeTracer(settings.tracing, "lathe-engine");
  EngineMetrics metrics(tracer.get());
  Readiness readiness;
  const absl::StatusOr<std::unique_ptr<MetricsServer>> metrics_server =
      StartMetrics(settings, metrics, readiness);
  if (!metrics_server.ok()) return Fail(metrics_server.status(), kExitUnavailable);
  stop.React([&store] { store.GiveUp(); });
  std::optional<Leadership> leadership;
  if (const std::optional<int> exit_code =
          Lead(settings, store, metrics, readiness, stop, leadership)) {
    return *exit_code;
  }
  KeyRing keys(store, clock, opened.gateway_secret, settings.users);
  if (const std::optional<int> exit_code = LoadKeys(settings, keys)) return *exit_code;
  Runtime runtime(RuntimeOptions(settings, opened.checkpoints_dir, opened.stored_checkpoints,
                                 metrics, tracer.get(), stop),
                  store, clock);
  Dispatcher dispatcher(runtime, opened.worker_secret, settings.worker_stuck_after);
  ArchiveSigner archives(opened.archive_key, runtime.checkpoint_dirs(), clock);
  AuditLog audit(store, clock);
  ReadThreads reads({.num_threads = settings.read_threads});
  EngineService engine(runtime, keys, reads, archives, audit, opened.lora);
  TenantsService tenants(runtime, keys, reads);
  StreamingService streaming(runtime, keys);
  const auto attached_groups = [&dispatcher] { return dispatcher.DescribeGroups(); };
  AccountsService accounts(runtime, keys, reads, attached_groups);
  TracesService traces(runtime, keys, reads, opened.archive_key);
  MetricsService run_metrics(runtime, keys, reads);
  EventsService events(runtime, keys, reads, attached_groups);
  CheckpointsService checkpoints(runtime, keys, reads, archives, audit);
  SignInService sign_in(runtime, keys, reads);
  UsersService users(keys, reads);
  GroupsService groups(runtime, keys, reads);
  AdminService admin(runtime, keys, reads, attached_groups);
  if (const std::optional<int> exit_code = StartRuntime(runtime, dispatcher, store, leadership)) {
    return *exit_code;
  }
  absl::StatusOr<Servers> servers = Servers::Start(
      settings.servers, {.engine = {&engine, &tenants, &streaming, &checkpoints, &accounts, &traces,
                                    &run_metrics, &sign_in, &users, &groups, &events},
                         .admin = admin,
                         .workers = dispatcher});
  if (!servers.ok()) {
    runtime.Stop();
    return Fail(servers.status(), kExitUnavailable);
  }
  ShowServing(settings, runtime, dispatcher, *servers, metrics, readiness);
  std::optional<Watches> watches(std::in_place, settings, runtime, store, metrics);
  std::optional<MachineSeries> machine(std::in_place, runtime, attached_groups);
  AwaitSignal(stop);
  const PeriodicTask give_up("engine-give-up", kCommitGrace, [&store] { store.GiveUp(); });
  machine.reset();
  watches.reset();
  readiness.Follow(nullptr);
  metrics.HideState();
  EndCalls(runtime, dispatcher, events);
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
  // Files that the engine creates are accessible to their owner only.
  umask(077);
  lathe::engine::Settings settings = lathe::engine::ParseSettings(argc, argv);
  if (settings.task) return lathe::engine::RunTask(*settings.task, settings);
  lathe::InitLogging("engine", settings.log_level);
  if (const absl::Status status = lathe::ArmFailPoints("engine"); !status.ok()) {
    return lathe::engine::Fail(status, lathe::kExitConfiguration);
  }
  // Block the signals before any thread starts, so that only StopSignal receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const lathe::LogLevelReload log_level(settings.config_path);
  return lathe::engine::Run(std::move(settings), signals);
}
