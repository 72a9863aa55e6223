// The settings of lathe-engine; docs/operations.md explains them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/tracing/tracing_options.h"
#include "services/engine/auth/user_book.h"
#include "services/engine/leadership/leadership.h"
#include "services/engine/one_task.h"
#include "services/engine/rpc/servers.h"
#include "services/engine/runtime/series_book.h"

namespace lathe::engine {

struct Settings {
  std::string store;
  std::string admin_key_file;
  // Empty: the engine makes them.
  std::string worker_secret;
  std::string gateway_secret;
  std::string data_dir;
  std::string run_dir;
  std::string log_level;
  std::string config_path;      // of --config; empty: none
  std::optional<OneTask> task;  // nothing: the engine serves
  std::string metrics_listen;
  absl::Duration gap_timeout;
  absl::Duration session_timeout;
  absl::Duration session_kept;
  absl::Duration trash_kept;
  absl::Duration model_idle_timeout;
  absl::Duration stuck_after;
  absl::Duration worker_stuck_after;
  absl::Duration group_lost_timeout;
  int sampler_versions_mib = 0;
  absl::Duration snapshot_interval;
  double snapshot_share = 0;
  int snapshot_log_mib = 0;
  int read_threads = 0;
  int64_t max_sessions_per_tenant = 0;
  int64_t max_samplers_per_tenant = 0;
  int64_t max_unfetched_results_per_tenant = 0;
  int64_t max_unfetched_bytes_per_tenant = 0;
  int64_t max_unfetched_results_total = 0;
  double lora_alpha = 0;
  std::vector<std::string> lora_target_modules;
  SeriesOptions series;
  std::vector<std::string> role_map;
  UserBook::Options users;  // its role map is made of `role_map`
  ServerOptions servers;
  Leadership::Options leadership;
  StorageOptions storage;
  TracingOptions tracing;
};

// Parses flags, the environment and a file. Ends the process if they are invalid.
Settings ParseSettings(int argc, char** argv);

// Makes what follows from other settings. Returns InvalidArgument that names the setting, its value
// and its bound.
absl::Status CheckSettings(Settings& settings);

}  // namespace lathe::engine
