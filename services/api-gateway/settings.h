// The settings of lathe-gateway; docs/listeners.md explains them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "libs/common/object_store/storage_options.h"
#include "libs/common/tracing/tracing_options.h"
#include "services/api-gateway/gateway.h"

namespace lathe::gateway {

// Least memory for the bodies of requests. It has room for several chunks of the SDK.
inline constexpr int64_t kMinInflightBytes = 256 << 20;

struct Settings {
  GatewayOptions gateway;
  std::string listen;
  std::string grpc_listen;  // empty: no gRPC
  std::string data_dir;
  StorageOptions storage;
  TracingOptions tracing;
  std::string log_level;
  std::string config_path;  // of --config; empty: none
  std::string metrics_listen;
  int poll_hold_seconds = 0;
  int num_threads = 0;
  bool insecure_i_know = false;
};

// Parses flags, the environment and a file. Ends the process if they are invalid.
Settings ParseSettings(int argc, char** argv);

// Returns InvalidArgument that names the setting, its value and its bound.
absl::Status CheckSettings(const Settings& settings);

}  // namespace lathe::gateway
