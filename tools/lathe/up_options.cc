#include "tools/lathe/up_options.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr char kDescription[] =
    "Starts Lathe on this machine: engine, worker and gateway.\n"
    "  lathe up --model Qwen/Qwen3-0.6B=./Qwen3-0.6B\n"
    "  lathe up --model Qwen/Qwen3-0.6B --listen 127.0.0.1:0 --data-dir /srv/lathe";

// What the two public listeners have in common.
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
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::vector<std::string> WorkerArguments(const UpOptions& options, const LaunchPlan& plan) {
  const std::string path = plan.model.path.string();
  std::vector<std::string> arguments = {"--engine",     plan.data_dir.SocketAddress("worker"),
                                        "--group",      "default",
                                        "--model",      absl::StrCat(plan.model.name, "=", path),
                                        "--rank",       "0",
                                        "--world",      "1",
                                        "--supervised", "true",
                                        "--device",     options.device,
                                        "--threads",    absl::StrCat(NumThreads(options))};
  if (!options.tokenizer.empty()) {
    arguments.insert(arguments.end(), {"--tokenizer", options.tokenizer});
  }
  if (plan.metrics) AddMetrics(plan.metrics->worker, arguments);
  return arguments;
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

}  // namespace

absl::StatusOr<UpOptions> ParseUpOptions(int argc, const char* const* argv) {
  UpOptions options;
  OptionSet set("lathe up", kDescription);
  set.Add(&options.model, "up.model", "",
          "[NAME=]PATH of a model folder, or a model id in the local cache", {.required = true});
  set.Add(&options.tokenizer, "up.tokenizer", "",
          "tokenizer id that clients are told; default: NAME when it is like org/model, else the "
          "model's path");
  set.Add(&options.listen, "up.listen", "127.0.0.1:8080",
          "address of the API, HOST:PORT; port 0 picks a free one");
  AddDataDirOptions(set, options.data);
  set.Add(&options.store, "up.store", "",
          "where the engine keeps its state: sqlite:PATH or postgres://…; default: "
          "LATHE_ENGINE__STORE, else a SQLite database in the data directory",
          {.may_hold_password = true});
  set.Add(&options.device, "up.device", "auto", "auto, cpu or cuda",
          {.choices = {"auto", "cpu", "cuda"}});
  set.Add(&options.num_threads, "up.threads", 0, "threads of the worker; 0: one for each CPU");
  set.Add(&options.grpc_listen, "up.grpc_listen", "", "also serve gRPC on this HOST:PORT");
  set.Add(&options.tls.cert, "up.tls_cert", "",
          "PEM file of a certificate chain: HTTPS, and TLS for gRPC; read again when it changes");
  set.Add(&options.tls.key, "up.tls_key", "", "PEM file of its private key");
  set.Add(&options.tls.client_ca, "up.tls_client_ca", "",
          "PEM file: clients must show a certificate that one of these has signed");
  set.Add(&options.insecure_i_know, "up.insecure_i_know", false,
          "lets the addresses be such that other machines reach, without TLS");
  set.Add(&options.metrics_listen, "up.metrics_listen", "",
          "HOST:PORT of the gateway's metrics and probes, for your own network; the engine's and "
          "the worker's are on the next two ports; port 0 picks free ones");
  set.Add(&options.public_url, "up.public_url", "",
          "URL under which clients reach the API; default: from each request");
  set.Add(&options.drain_timeout, "up.drain_timeout", absl::Seconds(30),
          "how long accepted work may go on after Ctrl-C");
  RETURN_IF_ERROR(set.Parse(argc, argv));
  if (options.num_threads < 0) {
    return WithDetail(absl::InvalidArgumentError(
                          absl::StrCat("threads is ", options.num_threads, ", expected 0 or more")),
                      "usage", "threads");
  }
  RETURN_IF_ERROR(CheckTransport(options));
  options.config_path = set.config_path();
  return options;
}

absl::StatusOr<std::vector<ChildSpec>> ChildSpecs(const UpOptions& options, const LaunchPlan& plan,
                                                  const std::filesystem::path& program_dir) {
  std::vector<ChildSpec> children;
  const auto add = [&](const std::string& name, std::vector<std::string> arguments,
                       std::vector<std::string> environment) -> absl::Status {
    ASSIGN_OR_RETURN(std::string program, FindProgram(program_dir, absl::StrCat("lathe-", name)));
    arguments.insert(arguments.begin(), std::move(program));
    arguments.insert(arguments.end(), {"--data-dir", plan.data_dir.path().string()});
    if (name != "gateway" && plan.data_dir.has_own_socket_dir()) {
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
  // Its URL may hold a password, and command lines are public.
  if (!options.store.empty()) {
    children.back().secrets = {absl::StrCat("LATHE_ENGINE__STORE=", options.store)};
  }
  // libgomp reads these when it is loaded; spinning threads would take the CPU from the others.
  RETURN_IF_ERROR(
      add("worker", WorkerArguments(options, plan),
          {absl::StrCat("OMP_NUM_THREADS=", NumThreads(options)), "OMP_WAIT_POLICY=passive"}));
  RETURN_IF_ERROR(add("gateway", GatewayArguments(options, plan), {}));
  return children;
}

}  // namespace lathe::cli
