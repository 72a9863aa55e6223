#include "tools/lathe/launch/up_options.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
    "Starts Lathe on this machine: engine, workers and gateway.\n  lathe up --model "
    "Qwen/Qwen3-0.6B=./Qwen3-0.6B\n  lathe up --model Qwen/Qwen3-0.6B --listen 127.0.0.1:0 "
    "--data-dir /srv/lathe\n  lathe up --model Qwen/Qwen3-0.6B --role train --role sample\n  lathe "
    "up --model "
    "Qwen/Qwen3-0.6B --model mine=./mine --memory-share 0.3 --memory-share 0.7";

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

std::vector<std::string> EngineArguments(const LaunchPlan& plan) {
  std::vector<std::string> arguments;
  if (plan.metrics) AddMetrics(plan.metrics->engine, arguments);
  return arguments;
}

std::vector<std::string> WorkerArguments(const UpOptions& options, const LaunchPlan& plan,
                                         const GroupPlan& group, int rank, int num_threads) {
  const ModelOptions& model = options.models[group.model];
  const ModelFolder& folder = plan.models[group.model];
  std::vector<std::string> arguments = {
      "--engine",     plan.data_dir.SocketAddress("worker"),
      "--group",      group.name,
      "--model",      absl::StrCat(folder.name, "=", folder.path.string()),
      "--dp",         absl::StrCat(model.dp),
      "--fsdp",       absl::StrCat(model.fsdp),
      "--tp",         absl::StrCat(model.tp),
      "--rank",       absl::StrCat(rank),
      "--supervised", "true",
      "--device",     options.device,
      "--threads",    absl::StrCat(num_threads)};
  if (!model.tokenizer.empty()) {
    arguments.insert(arguments.end(), {"--tokenizer", model.tokenizer});
  }
  if (!group.role.empty()) arguments.insert(arguments.end(), {"--role", group.role});
  if (group.memory_bytes > 0) {
    arguments.insert(arguments.end(),
                     {"--host-memory-mib", absl::StrCat(group.memory_bytes >> 20)});
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
  if (!options.grpc_listen.empty()) {
    arguments.insert(arguments.end(), {"--grpc-listen", options.grpc_listen});
  }
  AddTransport(options, arguments);
  return arguments;
}

absl::Status CheckRanks(const UpOptions& options) {
  if (options.num_groups < 1 || options.num_groups > kMaxRanks) {
    return WithDetail(absl::InvalidArgumentError(absl::StrCat("groups is ", options.num_groups,
                                                              ", expected 1 to ", kMaxRanks)),
                      "usage", "groups");
  }
  if (options.num_ranks() <= kMaxRanks) return absl::OkStatus();
  const std::string what =
      absl::StrCat(options.models.size() > 1 ? "sum over the models of " : "",
                   options.num_groups > 1 ? "groups x " : "", "dp x fsdp x tp");
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat(what, " is ", options.num_ranks(),
                                              " ranks on this machine, limit is ", kMaxRanks)),
      "usage", "dp");
}

// The name of a group when there is one base model.
std::string GroupName(int index) {
  return index == 0 ? "default" : absl::StrCat("group", index + 1);
}

// The name of a group of one of several base models.
std::string GroupName(const std::string& model, int index) {
  return index == 0 ? model : absl::StrCat(model, ":", index + 1);
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

// Returns the variables of the storage options, which all processes must have alike.
std::vector<std::string> StorageVariables(const StorageOptions& storage) {
  if (!storage.has_objects()) return {};
  return {
      absl::StrCat("LATHE_STORAGE__FILES=", storage.files),
      absl::StrCat("LATHE_STORAGE__ENDPOINT=", storage.endpoint),
      absl::StrCat("LATHE_STORAGE__REGION=", storage.region),
      absl::StrCat("LATHE_STORAGE__INSECURE_I_KNOW=", storage.insecure_i_know ? "true" : "false"),
      absl::StrCat("LATHE_STORAGE__CACHE_DIR=", storage.cache_dir),
      absl::StrCat("LATHE_STORAGE__CACHE_MIB=", storage.cache_mib)};
}

}  // namespace

int UpOptions::num_ranks() const {
  int sum = 0;
  for (const ModelOptions& model : models) sum += num_groups * model.ranks_per_group();
  return sum;
}

std::vector<GroupPlan> PlanGroups(const UpOptions& options, const std::vector<ModelFolder>& models,
                                  int64_t available_bytes) {
  std::vector<GroupPlan> groups;
  for (size_t place = 0; place < models.size(); ++place) {
    const ModelOptions& model = options.models[place];
    const double share = model.memory_share / options.num_groups;
    for (int i = 0; i < options.num_groups; ++i) {
      GroupPlan group{.name = models.size() == 1 ? GroupName(i) : GroupName(models[place].name, i),
                      .model = place,
                      .role = options.roles.empty() ? "" : options.roles[i]};
      if (share < 1) {
        group.memory_bytes = static_cast<int64_t>(share * static_cast<double>(available_bytes));
      }
      for (int rank = 0; rank < model.ranks_per_group(); ++rank) {
        std::string name = "worker";
        if (model.ranks_per_group() > 1) absl::StrAppend(&name, rank);
        if (options.num_all_groups() > 1) {
          // A model's name has no +, so two groups never share a name.
          absl::StrAppend(&name, "-", absl::StrReplaceAll(group.name, {{"/", "+"}}));
        }
        group.workers.push_back(std::move(name));
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

bool IsPlannedName(const std::string& group, const std::string& base_model) {
  for (int i = 0; i < kMaxRanks; ++i) {
    if (group == GroupName(i) || group == GroupName(base_model, i)) return true;
  }
  return false;
}

absl::StatusOr<UpOptions> ParseUpOptions(int argc, const char* const* argv) {
  UpOptions options;
  OptionSet set("lathe up", kUpDescription);
  ModelFlags flags;
  AddModelOptions(set, flags);
  set.Add(&options.listen, "up.listen", "127.0.0.1:8080",
          "address of the API, HOST:PORT; port 0 picks a free one");
  AddDataDirOptions(set, options.data);
  set.Add(&options.store, "up.store", "",
          "store of the engine: sqlite:PATH or postgres://…; default: LATHE_ENGINE__STORE, else "
          "a SQLite database in the data directory",
          {.may_hold_password = true});
  AddStorageOptions(set, options.storage, /*has_cache=*/true);
  set.Add(&options.device, "up.device", "auto", "auto, cpu or cuda",
          {.choices = {"auto", "cpu", "cuda"}});
  set.Add(&options.num_groups, "up.groups", 0,
          "number of worker groups of each base model, each with its share of CPUs and memory, or "
          "its own GPUs; 0: one, or one for each --role");
  set.Add(&options.roles, "up.role", {},
          "role of a group: train, sample or both; give it once for each group; default: both");
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
  if (absl::Status storage = CheckStorageOptions(options.storage); !storage.ok()) {
    return WithDetail(storage, "configuration", "storage");
  }
  ASSIGN_OR_RETURN(options.models, DivideBetweenModels(flags));
  RETURN_IF_ERROR(CountGroups(options));
  RETURN_IF_ERROR(CheckRanks(options));
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
  RETURN_IF_ERROR(add("engine", EngineArguments(plan), {}));
  // The URL may hold a password, and every user can read command lines.
  if (!options.store.empty()) {
    children.back().overrides = {absl::StrCat("LATHE_ENGINE__STORE=", options.store),
                                 "LATHE_ENGINE__STORE_FILE="};
  }
  const auto num_cpus = static_cast<int>(std::thread::hardware_concurrency());
  int place = 0;
  for (const GroupPlan& group : plan.groups) {
    const ModelOptions& model = options.models[group.model];
    const int num_threads = ThreadsPerRank(model, options.num_all_groups(), num_cpus);
    for (int rank = 0; rank < model.ranks_per_group(); ++rank, ++place) {
      std::vector<std::string> arguments = WorkerArguments(options, plan, group, rank, num_threads);
      if (plan.metrics) AddMetrics(plan.metrics->workers[place], arguments);
      // libgomp reads these when it is loaded. Spinning threads would take CPU from the others.
      RETURN_IF_ERROR(
          add("worker", std::move(arguments),
              {absl::StrCat("OMP_NUM_THREADS=", num_threads), "OMP_WAIT_POLICY=passive"},
              group.workers[rank]));
      children.back().overrides = DeviceOf(options, place);
    }
  }
  RETURN_IF_ERROR(add("gateway", GatewayArguments(options, plan), {}));
  for (ChildSpec& child : children) {
    for (std::string& variable : StorageVariables(options.storage)) {
      child.overrides.push_back(std::move(variable));
    }
  }
  return children;
}

}  // namespace lathe::cli
