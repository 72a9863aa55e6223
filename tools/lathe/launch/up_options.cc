#include "tools/lathe/launch/up_options.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/device/visible_device.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/launch/supervised_ranks.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr char kUpDescription[] =
    "Starts Lathe on this machine: engine, worker and gateway.\n  lathe up --model "
    "Qwen/Qwen3-0.6B=./Qwen3-0.6B\n  lathe up --model Qwen/Qwen3-0.6B --listen 127.0.0.1:0 "
    "--data-dir /srv/lathe\n  lathe up --model Qwen/Qwen3-0.6B --role train --role sample";

// Adds the TLS options, which the two public listeners share.
void AddTransport(const UpOptions& options, std::vector<std::string>& arguments) {
  const auto add = [&](const char* flag, const std::string& path) {
    if (path.empty()) return;
    arguments.insert(arguments.end(), {flag, std::filesystem::absolute(path).string()});
  };
  add("--tls-cert", options.tls.cert);
  add("--tls-key", options.tls.key);
  add("--tls-client-ca", options.tls.client_ca);
  if (options.insecure_i_know) arguments.emplace_back("--insecure-i-know");
}

absl::Status CheckTransport(const UpOptions& options) {
  RETURN_IF_ERROR(CheckTlsFiles(options.tls));
  for (const auto& [option, address] :
       {std::pair("listen", options.listen), std::pair("grpc_listen", options.grpc_listen)}) {
    if (address.empty()) continue;
    RETURN_IF_ERROR(CheckExposure({.option = option,
                                   .address = address,
                                   .has_tls = options.tls.enabled(),
                                   .insecure_i_know = options.insecure_i_know}));
  }
  return absl::OkStatus();
}

void AddMetrics(const ListenAddress& address, std::vector<std::string>& arguments) {
  arguments.insert(arguments.end(), {"--metrics-listen", address.ToString()});
}

std::vector<std::string> EngineArguments(const UpOptions& options, const LaunchPlan& plan) {
  std::vector<std::string> arguments;
  if (plan.metrics) AddMetrics(plan.metrics->engine, arguments);
  if (!options.grpc_listen.empty()) {
    arguments.insert(arguments.end(), {"--grpc-listen", options.grpc_listen});
    AddTransport(options, arguments);
  }
  return arguments;
}

int NumThreads(const UpOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  const auto num_cpus = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, num_cpus / options.num_ranks());
}

std::vector<std::string> WorkerArguments(const UpOptions& options, const LaunchPlan& plan,
                                         const GroupPlan& group, int rank) {
  const std::string path = plan.model.path.string();
  std::vector<std::string> arguments = {"--engine",     plan.data_dir.SocketAddress("worker"),
                                        "--group",      group.name,
                                        "--model",      absl::StrCat(plan.model.name, "=", path),
                                        "--dp",         absl::StrCat(options.dp),
                                        "--fsdp",       absl::StrCat(options.fsdp),
                                        "--tp",         absl::StrCat(options.tp),
                                        "--rank",       absl::StrCat(rank),
                                        "--supervised", "true",
                                        "--device",     options.device,
                                        "--threads",    absl::StrCat(NumThreads(options))};
  if (!options.tokenizer.empty()) {
    arguments.insert(arguments.end(), {"--tokenizer", options.tokenizer});
  }
  if (!group.role.empty()) arguments.insert(arguments.end(), {"--role", group.role});
  if (plan.memory_bytes_per_group > 0) {
    arguments.insert(arguments.end(),
                     {"--host-memory-mib", absl::StrCat(plan.memory_bytes_per_group >> 20)});
  }
  return arguments;
}

// Gives each of several ranks its own GPU, since a worker uses the first GPU that it sees. `place`
// is the rank's index among the ranks of all groups.
std::vector<std::string> DeviceOf(const UpOptions& options, int place) {
  if (options.num_ranks() == 1 || options.device == "cpu") return {};
  return {absl::StrCat(kVisibleDevices, "=", VisibleDevice(place))};
}

std::vector<std::string> GatewayArguments(const UpOptions& options, const LaunchPlan& plan) {
  std::vector<std::string> arguments = {"--engine", plan.data_dir.SocketAddress("engine"),
                                        "--listen", plan.listen.ToString()};
  if (plan.metrics) AddMetrics(plan.metrics->gateway, arguments);
  if (!plan.public_url.empty()) {
    arguments.insert(arguments.end(), {"--public-url", plan.public_url});
  }
  AddTransport(options, arguments);
  return arguments;
}

absl::Status CheckMesh(const UpOptions& options) {
  for (const auto& [name, size] :
       {std::pair("dp", options.dp), std::pair("fsdp", options.fsdp), std::pair("tp", options.tp),
        std::pair("groups", options.num_groups)}) {
    if (size >= 1 && size <= kMaxRanks) continue;
    return WithDetail(
        absl::InvalidArgumentError(absl::StrCat(name, " is ", size, ", expected 1 to ", kMaxRanks)),
        "usage", name);
  }
  if (options.num_ranks() <= kMaxRanks) return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                        options.num_groups > 1 ? "groups x " : "", "dp x fsdp x tp is ",
                        options.num_ranks(), " ranks on this machine, limit is ", kMaxRanks)),
                    "usage", "dp");
}

// Resolves num_groups. There must be one role per group or no roles.
absl::Status CountGroups(UpOptions& options) {
  for (const std::string& role : options.roles) {
    if (role == "train" || role == "sample" || role == "both") continue;
    return WithDetail(absl::InvalidArgumentError(
                          absl::StrCat("role is '", role, "', expected train, sample or both")),
                      "usage", "role");
  }
  const auto num_roles = static_cast<int>(options.roles.size());
  if (options.num_groups == 0) options.num_groups = std::max(1, num_roles);
  if (num_roles == 0 || num_roles == options.num_groups) return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(
                        absl::StrCat("groups is ", options.num_groups, ", with ", num_roles,
                                     " roles; expected a --role for each group, or none")),
                    "usage", "role");
}

}  // namespace

std::vector<GroupPlan> PlanGroups(const UpOptions& options) {
  std::vector<GroupPlan> groups;
  for (int i = 0; i < options.num_groups; ++i) {
    GroupPlan group{.name = i == 0 ? "default" : absl::StrCat("group", i + 1),
                    .role = options.roles.empty() ? "" : options.roles[i]};
    for (int rank = 0; rank < options.ranks_per_group(); ++rank) {
      std::string name = "worker";
      if (options.ranks_per_group() > 1) absl::StrAppend(&name, rank);
      if (options.num_groups > 1) absl::StrAppend(&name, "-", group.name);
      group.workers.push_back(std::move(name));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

absl::StatusOr<UpOptions> ParseUpOptions(int argc, const char* const* argv) {
  UpOptions options;
  OptionSet set("lathe up", kUpDescription);
  set.Add(&options.model, "up.model", "",
          "[NAME=]PATH of a model folder, or a model id in the local cache", {.required = true});
  set.Add(&options.tokenizer, "up.tokenizer", "",
          "tokenizer id for clients; default: NAME if it has the form org/model, else the "
          "model's path");
  set.Add(&options.listen, "up.listen", "127.0.0.1:8080",
          "address of the API, HOST:PORT; port 0 picks a free one");
  AddDataDirOptions(set, options.data);
  set.Add(&options.store, "up.store", "",
          "store of the engine: sqlite:PATH or postgres://…; default: LATHE_ENGINE__STORE, else "
          "a SQLite database in the data directory",
          {.may_hold_password = true});
  set.Add(&options.device, "up.device", "auto", "auto, cpu or cuda",
          {.choices = {"auto", "cpu", "cuda"}});
  set.Add(&options.num_threads, "up.threads", 0, "threads of each rank; 0: its share of the CPUs");
  set.Add(&options.num_groups, "up.groups", 0,
          "number of worker groups, each with its share of CPUs and memory, or its own GPUs; 0: "
          "one, or one for each --role");
  set.Add(&options.roles, "up.role", {},
          "role of a group: train, sample or both; give it once for each group; default: both");
  set.Add(&options.dp, "up.dp", 1,
          "number of replicas in a group; they share the rows of training and the samples");
  set.Add(&options.fsdp, "up.fsdp", 1,
          "number of ranks that share the rows of training; each keeps a part of every layer");
  set.Add(&options.tp, "up.tp", 1, "number of ranks that divide every matrix");
  set.Add(&options.grpc_listen, "up.grpc_listen", "", "also serve gRPC on this HOST:PORT");
  set.Add(&options.tls.cert, "up.tls_cert", "",
          "PEM file with a certificate chain, for HTTPS and TLS for gRPC; read again when it "
          "changes");
  set.Add(&options.tls.key, "up.tls_key", "", "PEM file of its private key");
  set.Add(&options.tls.client_ca, "up.tls_client_ca", "",
          "PEM file with CAs; clients must present a certificate that one of them signed");
  set.Add(&options.insecure_i_know, "up.insecure_i_know", false,
          "allows addresses that other machines reach, without TLS");
  set.Add(&options.metrics_listen, "up.metrics_listen", "",
          "HOST:PORT of the gateway's metrics and probes, for a private network; the engine and "
          "the ranks use the next ports; port 0 picks free ones");
  set.Add(&options.public_url, "up.public_url", "",
          "URL under which clients reach the API; default: from each request");
  set.Add(&options.drain_timeout, "up.drain_timeout", absl::Seconds(30),
          "time that accepted work gets to finish after Ctrl-C");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  if (options.num_threads < 0) {
    return WithDetail(absl::InvalidArgumentError(
                          absl::StrCat("threads is ", options.num_threads, ", expected 0 or more")),
                      "usage", "threads");
  }
  RETURN_IF_ERROR(CountGroups(options));
  RETURN_IF_ERROR(CheckMesh(options));
  RETURN_IF_ERROR(CheckTransport(options));
  options.config_path = set.config_path();
  return options;
}

absl::StatusOr<std::vector<ChildSpec>> ChildSpecs(const UpOptions& options, const LaunchPlan& plan,
                                                  const std::filesystem::path& program_dir) {
  std::vector<ChildSpec> children;
  // `child` is the process's name; empty: the service's name.
  const auto add = [&](const std::string& service, std::vector<std::string> arguments,
                       std::vector<std::string> environment,
                       const std::string& child = "") -> absl::Status {
    const std::string name = child.empty() ? service : child;
    ASSIGN_OR_RETURN(std::string program,
                     FindProgram(program_dir, absl::StrCat("lathe-", service)));
    arguments.insert(arguments.begin(), std::move(program));
    arguments.insert(arguments.end(), {"--data-dir", plan.data_dir.path().string()});
    if (service != "gateway" && plan.data_dir.has_own_socket_dir()) {
      arguments.insert(arguments.end(), {"--run-dir", plan.data_dir.socket_dir().string()});
    }
    if (!options.config_path.empty()) {
      arguments.insert(arguments.end(), {"--config", options.config_path});
    }
    children.push_back({.name = name,
                        .arguments = std::move(arguments),
                        .environment = std::move(environment),
                        .log_path = plan.data_dir.logs() / absl::StrCat(name, ".log")});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add("engine", EngineArguments(options, plan), {}));
  // The URL may hold a password, and every user can read command lines.
  if (!options.store.empty()) {
    children.back().overrides = {absl::StrCat("LATHE_ENGINE__STORE=", options.store)};
  }
  int place = 0;
  for (const GroupPlan& group : plan.groups) {
    for (int rank = 0; rank < options.ranks_per_group(); ++rank, ++place) {
      std::vector<std::string> arguments = WorkerArguments(options, plan, group, rank);
      if (plan.metrics) AddMetrics(plan.metrics->workers[place], arguments);
      // libgomp reads these when it is loaded. Spinning threads would take CPU from the others.
      RETURN_IF_ERROR(
          add("worker", std::move(arguments),
              {absl::StrCat("OMP_NUM_THREADS=", NumThreads(options)), "OMP_WAIT_POLICY=passive"},
              group.workers[rank]));
      children.back().overrides = DeviceOf(options, place);
    }
  }
  RETURN_IF_ERROR(add("gateway", GatewayArguments(options, plan), {}));
  return children;
}

}  // namespace lathe::cli
