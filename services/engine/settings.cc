#include "services/engine/settings.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/logging/log_level.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core_watch.h"
#include "services/engine/rpc/validate_lora.h"

namespace lathe::engine {

namespace {

constexpr size_t kMinSecretLength = 32;
constexpr int64_t kMinKeptPoints = 1024;

void AddListeners(OptionSet& options, Settings& settings) {
  options.Add(&settings.servers.grpc_listen, "engine.grpc_listen", "",
              "HOST:PORT for gateways of other machines, on a private network; empty: none");
  options.Add(
      &settings.servers.tls.cert, "engine.tls_cert", "",
      "PEM file with the certificate chain of grpc_listen and worker_listen; read again when it "
      "changes");
  options.Add(&settings.servers.tls.key, "engine.tls_key", "", "PEM file of its private key");
  options.Add(&settings.servers.tls.client_ca, "engine.tls_client_ca", "",
              "PEM file with CAs; gRPC clients must present a certificate that one of them signed");
  options.Add(&settings.servers.worker_listen, "engine.worker_listen", "",
              "HOST:PORT for workers of other machines, with tls_cert; empty: none");
  options.Add(&settings.servers.worker_client_ca, "engine.worker_client_ca", "",
              "PEM file with CAs; workers on worker_listen must present a certificate that one "
              "of them signed");
  options.Add(&settings.servers.allow_insecure, "engine.insecure_i_know", false,
              "allows grpc_listen and worker_listen to be addresses that other machines reach, "
              "without TLS");
}

void AddSecrets(OptionSet& options, Settings& settings) {
  options.Add(&settings.admin_key_file, "engine.admin_key_file", "",
              "file of the first admin key: the leader accepts the key in it, and makes one if the "
              "file is missing and there is no admin key; empty: none");
  options.Add(&settings.worker_secret, "engine.worker_secret", "",
              "secret of the workers, the same for all engines on one store; at least 32 "
              "characters; empty: from RUN_DIR/secret or a Postgres store",
              {.secret = true});
  options.Add(&settings.gateway_secret, "engine.gateway_secret", "",
              "secret of the gateways, as worker_secret; empty: derived from that of the workers",
              {.secret = true});
}

absl::Status CheckSecrets(const Settings& settings) {
  const std::pair<const char*, const std::string*> secrets[] = {
      {"worker_secret", &settings.worker_secret}, {"gateway_secret", &settings.gateway_secret}};
  for (const auto& [name, secret] : secrets) {
    if (secret->empty() || secret->size() >= kMinSecretLength) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", secret->size(), " characters, minimum is ", kMinSecretLength));
  }
  return absl::OkStatus();
}

void AddTimeouts(OptionSet& options, Settings& settings) {
  const CoreOptions defaults;
  options.Add(&settings.gap_timeout, "engine.gap_timeout", absl::Nanoseconds(defaults.gap_timeout),
              "maximum time that a forward_backward waits for a smaller seq_id that is missing");
  options.Add(&settings.session_timeout, "engine.session_timeout",
              absl::Nanoseconds(defaults.session_timeout),
              "a session without heartbeats for this long is offloaded: open gradients are "
              "dropped, models are kept on disk only; its next request resumes them");
  options.Add(&settings.session_kept, "engine.session_kept",
              absl::Nanoseconds(defaults.session_kept),
              "a session without heartbeats for this long ends with its models and unnamed "
              "sampler versions; 0s: it ends after session_timeout");
  options.Add(&settings.trash_kept, "engine.trash_kept", absl::Hours(7 * 24),
              "checkpoint folders that no row names, for example after the database was restored, "
              "are moved to checkpoints/trash at the start and deleted this much later");
  options.Add(&settings.model_idle_timeout, "engine.model_idle_timeout",
              absl::Nanoseconds(defaults.model_idle_timeout),
              "a model without requests for this long is offloaded with its gradient, even if "
              "its client is connected; 0s: never");
  options.Add(&settings.stuck_after, "engine.stuck_after", absl::Seconds(30),
              "if the core handles no event for this long, the engine logs the stacks of its "
              "threads and aborts; at least 3s, 0: never");
  options.Add(&settings.worker_stuck_after, "engine.worker_stuck_after", absl::Seconds(120),
              "a busy worker whose work makes no step for this long is declared dead and killed; "
              "at least 4s, 0: never");
  options.Add(&settings.group_lost_timeout, "engine.group_lost_timeout",
              absl::Nanoseconds(defaults.group_lost_timeout),
              "if a group has lost its worker and was not ready for this long, its models "
              "migrate to a ready group of their base model; 0s: never");
  options.Add(&settings.leadership.lease, "engine.lease", settings.leadership.lease,
              "with a Postgres store: a standby replaces a leader that has not renewed its lease "
              "for this long; 2s to 1m");
  options.Add(&settings.leadership.renewal, "engine.lease_renewal", settings.leadership.renewal,
              "time between two renewals of the lease; 100ms to a third of lease");
}

void AddVersionsAndSnapshots(OptionSet& options, Settings& settings) {
  const CoreOptions defaults;
  options.Add(&settings.sampler_versions_mib, "engine.sampler_versions_mib",
              static_cast<int>(defaults.sampler_versions_bytes >> 20),
              "MiB of unnamed sampler versions of one tenant; above it the least recently "
              "sampled versions are dropped, never the newest 4");
  options.Add(&settings.snapshot_interval, "engine.snapshot_interval",
              absl::Nanoseconds(defaults.snapshot_interval),
              "minimum time between two snapshots of a changed model, so that a lost worker "
              "costs little repeated work; 0s: no snapshots, a recovery repeats everything since "
              "the creation");
  options.Add(&settings.snapshot_share, "engine.snapshot_share", defaults.snapshot_share,
              "share of a worker's time that snapshots may take; if they need more, the interval "
              "grows");
  options.Add(&settings.snapshot_log_mib, "engine.snapshot_log_mib",
              static_cast<int>(defaults.snapshot_log_bytes >> 20),
              "MiB of request bodies in a model's log, above which a snapshot is written at once");
}

void AddTenantLimits(OptionSet& options, Settings& settings) {
  const CoreOptions defaults;
  options.Add(&settings.max_sessions_per_tenant, "engine.max_sessions_per_tenant",
              defaults.max_sessions_per_tenant,
              "sessions of one tenant that have not ended, unless `lathe tenants set-quota` sets "
              "another limit; 0: no limit");
  options.Add(&settings.max_samplers_per_tenant, "engine.max_samplers_per_tenant",
              defaults.max_samplers_per_tenant,
              "samplers of one tenant whose sessions have not ended; limits and 0 as for sessions");
  options.Add(&settings.max_unfetched_results_per_tenant, "engine.max_unfetched_results_per_tenant",
              defaults.max_unfetched_results_per_tenant,
              "finished results of one tenant that no client has fetched; above it the oldest are "
              "removed; limits and 0 as for sessions");
  options.Add(&settings.max_unfetched_bytes_per_tenant, "engine.max_unfetched_bytes_per_tenant",
              defaults.max_unfetched_bytes_per_tenant, "the same for the bytes of these results");
  options.Add(&settings.max_unfetched_results_total, "engine.max_unfetched_results_total",
              defaults.max_unfetched_results_total,
              "the same results of all tenants; above it the tenant with most of them loses its "
              "oldest; 0: no limit");
}

void AddSeries(OptionSet& options, Settings& settings) {
  options.Add(&settings.series.keep, "metrics.keep", settings.series.keep,
              "time for which the metrics of a run stay after its last point; 0s: nothing more is "
              "kept, and what there is stays",
              {.flag = "metrics-keep"});
  options.Add(&settings.series.keep_points_per_series, "metrics.keep_points_per_series",
              settings.series.keep_points_per_series,
              "points of a metric that stay as they are, at least 1,024; the older ones are joined "
              "to ever larger buckets",
              {.flag = "metrics-keep-points-per-series"});
  options.Add(&settings.series.max_series_per_tenant, "metrics.max_series_per_tenant",
              settings.series.max_series_per_tenant,
              "metrics of all runs of one tenant, where each run may have 500; 0: no limit",
              {.flag = "metrics-max-series-per-tenant"});
}

void AddUsers(OptionSet& options, Settings& settings) {
  options.Add(&settings.users.session_lifetime, "auth.session", settings.users.session_lifetime,
              "time after which a browser has to sign in again; 1m to 30 days",
              {.flag = "auth-session"});
  options.Add(&settings.users.session_idle, "auth.session_idle", settings.users.session_idle,
              "a session that is not used for this long ends; 1m to 30 days",
              {.flag = "auth-session-idle"});
  options.Add(
      &settings.role_map, "auth.role_map", {},
      "roles of users whom an identity provider or a proxy names, as lines "
      "CLAIM=VALUE:ROLE@TENANT: the first that fits decides, and without one nobody gets in",
      {.flag = "auth-role-map", .keeps_commas = true});
}

// Completes the options of users.
absl::Status CheckUsers(Settings& settings) {
  constexpr absl::Duration kMin = absl::Minutes(1);
  constexpr absl::Duration kMax = absl::Hours(30 * 24);
  for (const auto& [name, value] : {std::pair("session", settings.users.session_lifetime),
                                    std::pair("session_idle", settings.users.session_idle)}) {
    if (value >= kMin && value <= kMax) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "auth.", name, " is ", absl::FormatDuration(value), ", allowed are 1m to 720h"));
  }
  ASSIGN_OR_RETURN(settings.users.role_map, RoleMap::Parse(settings.role_map));
  return absl::OkStatus();
}

void AddLoraDefaults(OptionSet& options, Settings& settings) {
  const LoraDefaults lora;
  options.Add(&settings.lora_alpha, "lora.alpha", lora.alpha,
              "alpha of models whose request names none; alpha / rank scales an adapter",
              {.flag = "lora-alpha"});
  options.Add(&settings.lora_target_modules, "lora.target_modules",
              std::vector<std::string>{kAllModules},
              "modules that train_attn, train_mlp and train_unembed include, if a request names no "
              "target_modules; all: each that the base model has",
              {.flag = "lora-target-modules"});
}

}  // namespace

Settings ParseSettings(int argc, char** argv) {
  Settings settings;
  settings.task = TakeTask(argc, argv);
  OptionSet options("lathe-engine", "Orders, schedules and keeps the work of a Lathe service.");
  options.Add(&settings.data_dir, "engine.data_dir", "", "directory of all durable data",
              {.required = true});
  options.Add(&settings.store, "engine.store", "",
              "sqlite:PATH or postgres://…; empty: sqlite:DATA_DIR/lathe.db",
              {.may_hold_password = true});
  AddSecrets(options, settings);
  options.Add(&settings.run_dir, "engine.run_dir", "",
              "directory of sockets and the workers' secret; empty: DATA_DIR/run");
  AddStorageOptions(options, settings.storage, /*has_cache=*/false);
  AddListeners(options, settings);
  AddTimeouts(options, settings);
  AddVersionsAndSnapshots(options, settings);
  AddTenantLimits(options, settings);
  AddLoraDefaults(options, settings);
  AddSeries(options, settings);
  AddUsers(options, settings);
  options.Add(&settings.read_threads, "engine.read_threads", 4,
              "threads for listings and other reads; one tenant uses half of them at "
              "most; 1 to 64");
  options.Add(&settings.metrics_listen, "metrics.engine_listen", "",
              "HOST:PORT of /metrics, /livez and /readyz, for a private network; empty: no page",
              {.flag = "metrics-listen"});
  AddTracingOptions(options, settings.tracing);
  AddLogLevel(options, &settings.log_level);
  options.SetCheck([&settings]() -> absl::Status {
    RETURN_IF_ERROR(CheckSettings(settings));
    return MakeLoraDefaults(settings.lora_alpha, settings.lora_target_modules).status();
  });
  options.ParseOrExit(argc, argv);
  settings.config_path = options.config_path();
  return settings;
}

absl::Status CheckSettings(Settings& settings) {
  RETURN_IF_ERROR(CheckUsers(settings));
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
  if (settings.group_lost_timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("group_lost_timeout is ", absl::FormatDuration(settings.group_lost_timeout),
                     ", minimum is 0s"));
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
  if (settings.series.keep < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metrics.keep is ", absl::FormatDuration(settings.series.keep), ", minimum is 0s"));
  }
  if (settings.series.keep_points_per_series < kMinKeptPoints) {
    return absl::InvalidArgumentError(absl::StrCat("metrics.keep_points_per_series is ",
                                                   settings.series.keep_points_per_series,
                                                   ", minimum is ", kMinKeptPoints));
  }
  RETURN_IF_ERROR(CheckSecrets(settings));
  RETURN_IF_ERROR(Leadership::Check(settings.leadership));
  RETURN_IF_ERROR(CheckStorageOptions(settings.storage));
  RETURN_IF_ERROR(CheckTracingOptions(settings.tracing));
  if (settings.snapshot_log_mib < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot_log_mib is ", settings.snapshot_log_mib, ", minimum is 1"));
  }
  const std::pair<const char*, int64_t> limits[] = {
      {"max_sessions_per_tenant", settings.max_sessions_per_tenant},
      {"max_series_per_tenant", settings.series.max_series_per_tenant},
      {"max_samplers_per_tenant", settings.max_samplers_per_tenant},
      {"max_unfetched_results_per_tenant", settings.max_unfetched_results_per_tenant},
      {"max_unfetched_bytes_per_tenant", settings.max_unfetched_bytes_per_tenant},
      {"max_unfetched_results_total", settings.max_unfetched_results_total}};
  for (const auto& [name, limit] : limits) {
    if (limit >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", limit, ", minimum is 0, which means no limit"));
  }
  if (settings.read_threads < 1 || settings.read_threads > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("read_threads is ", settings.read_threads, ", expected 1 to 64"));
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
