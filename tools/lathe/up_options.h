// What `lathe up` was asked for, and what it starts for that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"
#include "tools/lathe/child_process.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/data_dir_options.h"
#include "tools/lathe/listen_address.h"
#include "tools/lathe/model_folder.h"

namespace lathe::cli {

struct UpOptions {
  // [NAME=]PATH
  std::string model;
  // Empty: the model folder's absolute path.
  std::string tokenizer;
  std::string listen;
  DataDirOptions data;
  // Of the engine; empty: its own default.
  std::string store;
  // auto, cpu or cuda.
  std::string device;
  // Of each rank; 0: its share of the CPUs.
  int num_threads = 0;
  // Worker groups, all of this mesh.
  int num_groups = 0;  // 0: as many as there are roles, or one
  // What each is used for: train, sample or both; empty: all are used for both.
  std::vector<std::string> roles;
  // Ranks of a group along each axis of its mesh; all of them on this machine.
  int dp = 1;
  int fsdp = 1;
  int tp = 1;
  int ranks_per_group() const { return dp * fsdp * tp; }
  int num_ranks() const { return num_groups * ranks_per_group(); }
  // Empty: the public gRPC service is not opened on TCP.
  std::string grpc_listen;
  // Of the API and of grpc_listen; without a certificate both are served in the clear.
  TlsFiles tls;
  // Lets both be addresses that other machines reach, without TLS.
  bool insecure_i_know = false;
  // Of the gateway's page of metrics; empty: none has one.
  std::string metrics_listen;
  // Empty: taken from each request's Host.
  std::string public_url;
  // How long accepted work may go on after a signal.
  absl::Duration drain_timeout;
  // Passed on to all; empty: none.
  std::string config_path;
};

// `argv[0]` is not looked at. Errors as OptionSet::Parse.
absl::StatusOr<UpOptions> ParseUpOptions(int argc, const char* const* argv);

struct GroupPlan {
  std::string name;
  std::string role;                  // empty: its worker's own choice
  std::vector<std::string> workers;  // names of its processes, by rank
};

// "default", and with it "group2" and so on; their processes "worker", of several ranks "worker0"
// and so on, of several groups each with the group's name: "worker0-group2".
std::vector<GroupPlan> PlanGroups(const UpOptions& options);

// Everything resolved: what `lathe up` runs.
struct LaunchPlan {
  DataDir data_dir;
  ModelFolder model;
  ListenAddress listen;
  bool has_tls = false;
  std::string public_url;
  absl::Duration drain_timeout;
  std::vector<GroupPlan> groups;
  // That each group may use on a CPU; 0: one alone finds out itself.
  int64_t memory_bytes_per_group = 0;
  // Pages of metrics; empty: none.
  struct Metrics {
    ListenAddress gateway;
    ListenAddress engine;
    std::vector<ListenAddress> workers;  // by group and rank
  };
  std::optional<Metrics> metrics = {};
  // engine, workers, gateway.
  std::vector<ChildSpec> children = {};
};

// The commands. `program_dir` holds the binaries; error configuration when one is missing.
absl::StatusOr<std::vector<ChildSpec>> ChildSpecs(const UpOptions& options, const LaunchPlan& plan,
                                                  const std::filesystem::path& program_dir);

}  // namespace lathe::cli
