#include "services/engine/settings.h"

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core_watch.h"
#include "services/engine/rpc/validate_lora.h"

namespace lathe::engine {

namespace {

void AddListeners(OptionSet& options, Settings& settings) {
  options.Add(&settings.servers.grpc_listen, "engine.grpc_listen", "",
              "HOST:PORT of the public gRPC service; empty: none");
  options.Add(
      &settings.servers.tls.cert, "engine.tls_cert", "",
      "PEM file of the certificate chain of grpc_listen and worker_listen; read again when it "
      "changes");
  options.Add(&settings.servers.tls.key, "engine.tls_key", "", "PEM file of its private key");
  options.Add(&settings.servers.tls.client_ca, "engine.tls_client_ca", "",
              "PEM file: gRPC clients must show a certificate that one of these has signed");
  options.Add(&settings.servers.worker_listen, "engine.worker_listen", "",
              "HOST:PORT for workers of other machines, with tls_cert; empty: none");
  options.Add(&settings.servers.worker_client_ca, "engine.worker_client_ca", "",
              "PEM file: workers there must show a certificate that one of these has signed");
  options.Add(&settings.servers.allow_insecure, "engine.insecure_i_know", false,
              "lets grpc_listen and worker_listen be addresses other machines reach, without TLS");
  options.Add(&settings.servers.reflection, "engine.reflection", false,
              "gRPC reflection on the public service too");
}

void AddTimeouts(OptionSet& options, Settings& settings) {
  const CoreOptions defaults;
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
  options.Add(&settings.group_lost_timeout, "engine.group_lost_timeout",
              absl::Nanoseconds(defaults.group_lost_timeout),
              "the models of a worker group that has lost its worker and was not ready for so long "
              "go on in another group of their base model, if one is ready; 0s: never");
  options.Add(&settings.leadership.lease, "engine.lease", settings.leadership.lease,
              "with a Postgres store: an engine on another machine, or one that hangs, is replaced "
              "by a standby after so long without a sign of life; 2s to 1m");
  options.Add(&settings.leadership.renewal, "engine.lease_renewal", settings.leadership.renewal,
              "time between two signs of life; 100ms to a third of lease");
}

void AddVersionsAndSnapshots(OptionSet& options, Settings& settings) {
  const CoreOptions defaults;
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
}

void AddLoraDefaults(OptionSet& options, Settings& settings) {
  const LoraDefaults lora;
  options.Add(&settings.lora_alpha, "lora.alpha", lora.alpha,
              "alpha of models whose request names none; alpha / rank scales an adapter",
              {.flag = "lora-alpha"});
  options.Add(&settings.lora_target_modules, "lora.target_modules", lora.target_modules,
              "linears that train_attn, train_mlp and train_unembed stand for, where a request "
              "names no target_modules",
              {.flag = "lora-target-modules"});
}

}  // namespace

Settings ParseSettings(int argc, char** argv) {
  Settings settings;
  OptionSet options("lathe-engine", "Orders, schedules and keeps the work of a Lathe service.");
  options.Add(&settings.data_dir, "engine.data_dir", "", "directory of everything durable",
              {.required = true});
  options.Add(&settings.store, "engine.store", "",
              "sqlite:PATH or postgres://…; empty: sqlite:DATA_DIR/lathe.db",
              {.may_hold_password = true});
  options.Add(&settings.run_dir, "engine.run_dir", "",
              "directory of sockets and the workers' secret; empty: DATA_DIR/run");
  AddListeners(options, settings);
  AddTimeouts(options, settings);
  AddVersionsAndSnapshots(options, settings);
  AddLoraDefaults(options, settings);
  options.Add(&settings.metrics_listen, "metrics.engine_listen", "",
              "HOST:PORT of /metrics, /livez and /readyz, for your own network; empty: none",
              {.flag = "metrics-listen"});
  options.Add(&settings.log_level, "engine.log_level", "info", "debug, info, warn or error");
  options.ParseOrExit(argc, argv);
  return settings;
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
  RETURN_IF_ERROR(Leadership::Check(settings.leadership));
  if (settings.snapshot_log_mib < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot_log_mib is ", settings.snapshot_log_mib, ", minimum is 1"));
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
