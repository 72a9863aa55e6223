// The options of `lathe up`, and the processes that it starts for them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/launch/child_process.h"
#include "tools/lathe/launch/listen_address.h"
#include "tools/lathe/model_folder.h"

namespace lathe::cli {

struct UpOptions {
  // [NAME=]PATH, see ResolveModel.
  std::string model;
  // Tokenizer id that clients receive. Empty: the worker's default.
  std::string tokenizer;
  std::string listen;
  DataDirOptions data;
  // The engine's store, sqlite:PATH or postgres://…. Empty: the engine's default.
  std::string store;
  // auto, cpu or cuda.
  std::string device;
  // Threads of each rank; 0: its share of the CPUs.
  int num_threads = 0;
  // Number of worker groups, which all have the same mesh. 0: one per role, or one group.
  int num_groups = 0;
  // Role of each group: train, sample or both. Empty: `both` for all groups.
  std::vector<std::string> roles;
  // Number of ranks along each axis of a group's mesh. All ranks are on this machine.
  int dp = 1;
  int fsdp = 1;
  int tp = 1;
  int ranks_per_group() const { return dp * fsdp * tp; }
  int num_ranks() const { return num_groups * ranks_per_group(); }
  // HOST:PORT of the public gRPC service. Empty: it is not opened on TCP.
  std::string grpc_listen;
  // Certificates of `listen` and `grpc_listen`. Without one, both are served without TLS.
  TlsFiles tls;
  // True if both may be reachable from other machines without TLS.
  bool insecure_i_know = false;
  // HOST:PORT of the gateway's metrics page; the other processes use the next ports. Empty: no
  // process has a page.
  std::string metrics_listen;
  // URL at which clients reach the API. Empty: derived from each request's Host header.
  std::string public_url;
  // Time that accepted work may take to finish after a stop signal.
  absl::Duration drain_timeout;
  // Config file, passed to all processes. Empty: none.
  std::string config_path;
};

// `argv[0]` is ignored. Errors: those of OptionSet::Parse; usage or configuration for values that
// do not fit together.
absl::StatusOr<UpOptions> ParseUpOptions(int argc, const char* const* argv);

struct GroupPlan {
  std::string name;
  std::string role;                  // empty: the worker's default
  std::vector<std::string> workers;  // names of its processes, by rank
};

// Names groups "default", "group2", "group3", …. A process is "worker", or "worker0", "worker1", …
// if a group has several ranks. With several groups, the group's name follows: "worker0-group2".
std::vector<GroupPlan> PlanGroups(const UpOptions& options);

// The resolved options: everything that `lathe up` runs.
struct LaunchPlan {
  DataDir data_dir;
  ModelFolder model;
  ListenAddress listen;
  bool has_tls = false;
  std::string public_url;
  absl::Duration drain_timeout;
  std::vector<GroupPlan> groups;
  // Host memory that each group may use on a CPU. 0: a single group, which measures it itself.
  int64_t memory_bytes_per_group = 0;
  // Addresses of the metrics pages.
  struct Metrics {
    ListenAddress gateway;
    ListenAddress engine;
    std::vector<ListenAddress> workers;  // by group and rank
  };
  std::optional<Metrics> metrics = {};  // nullopt: no pages
  // In start order: engine, workers, gateway.
  std::vector<ChildSpec> children = {};
};

// Returns the commands to start. `program_dir` holds the binaries; error configuration if one is
// missing.
absl::StatusOr<std::vector<ChildSpec>> ChildSpecs(const UpOptions& options, const LaunchPlan& plan,
                                                  const std::filesystem::path& program_dir);

}  // namespace lathe::cli
