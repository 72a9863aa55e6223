// The options of `lathe up`, and the processes that it starts for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"
#include "libs/common/object_store/storage_options.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/launch/child_process.h"
#include "tools/lathe/launch/listen_address.h"
#include "tools/lathe/launch/model_options.h"
#include "tools/lathe/model_folder.h"

namespace lathe::cli {

struct UpOptions {
  // One entry for each base model.
  std::vector<ModelOptions> models;
  std::string listen;
  DataDirOptions data;
  // The engine's store, sqlite:PATH or postgres://…. Empty: the engine's default.
  std::string store;
  // Place of checkpoints, for all processes.
  StorageOptions storage;
  // auto, cpu or cuda.
  std::string device;
  // Number of worker groups of each base model, which all have the same mesh. 0: one per role, or
  // one group.
  int num_groups = 0;
  // Role of each group of a base model: train, sample or both. Empty: `both` for all groups.
  std::vector<std::string> roles;
  // Number of groups, and of ranks, of all base models.
  int num_all_groups() const { return num_groups * static_cast<int>(models.size()); }
  int num_ranks() const;
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
  size_t model = 0;                  // index of its base model
  std::string role;                  // empty: the worker's default
  std::vector<std::string> workers;  // names of its processes, by rank
  // Host memory that it may use on a CPU. 0: all that is free, which it measures itself.
  int64_t memory_bytes = 0;
};

// Plans the groups of `models`, which are those of `options`. `available_bytes`: host memory that
// is free before any worker starts.
//
// The groups of a single base model are "default", "group2", "group3", …. Groups of several have
// the names of their models, "NAME", "NAME:2", …, so that a group keeps its base model when other
// models come and go. A process is "worker", or "worker0", "worker1", … if a group has several
// ranks. With several groups, the group's name follows, with + for /: "worker0-Qwen+Qwen3-8B:2".
std::vector<GroupPlan> PlanGroups(const UpOptions& options, const std::vector<ModelFolder>& models,
                                  int64_t available_bytes);

// Returns true if PlanGroups may give this name to a group of `base_model`.
bool IsPlannedName(const std::string& group, const std::string& base_model);

// The resolved options: everything that `lathe up` runs.
struct LaunchPlan {
  DataDir data_dir;
  std::vector<ModelFolder> models;
  ListenAddress listen;
  bool has_tls = false;
  std::string public_url;
  absl::Duration drain_timeout;
  std::vector<GroupPlan> groups;
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
