#include "services/engine/rpc/servers.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/impl/server_initializer.h>
#include <grpcpp/server_builder.h>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/rpc/server.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/leader_guard.h"

namespace lathe::engine {

namespace {

class NamesPlugin final : public grpc::ServerBuilderPlugin {
 public:
  explicit NamesPlugin(std::vector<std::string>* names) : names_(names) {}

  std::string name() override { return "service_names"; }
  void InitServer(grpc::ServerInitializer*) override {}
  void Finish(grpc::ServerInitializer* server) override { *names_ = *server->GetServiceList(); }
  void ChangeArguments(const std::string&, void*) override {}

 private:
  std::vector<std::string>* const names_;
};

}  // namespace

void ServiceNamesOption::UpdatePlugins(
    std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) {
  plugins->push_back(std::make_unique<NamesPlugin>(names_));
}

namespace {

// sun_path has 108 bytes, which must also hold "/worker.sock".
constexpr size_t kMaxRunDirBytes = 90;
constexpr auto kShutdownTime = std::chrono::seconds(1);
constexpr char kWorkerSocket[] = "worker.sock";
constexpr char kEngineSocket[] = "engine.sock";
constexpr char kAdminSocket[] = "admin.sock";
// Health checks use these names. Other services get theirs when the engine leads.
constexpr std::array<const char*, 3> kHealthNames = {"lathe.v1.Engine", "lathe.v1.WorkerPool",
                                                     "lathe.v1.Admin"};

// Addresses of one server.
struct Listener {
  const ServerOptions& options;
  // File name below run_dir.
  std::string socket;
  // HOST:PORT in addition to the socket; empty: none.
  std::string tcp = "";
  TlsFiles tls = {};
  int* tcp_port = nullptr;
};

Listener EngineListener(const ServerOptions& options, int* port) {
  return {.options = options,
          .socket = kEngineSocket,
          .tcp = options.grpc_listen,
          .tls = options.tls,
          .tcp_port = port};
}

TlsFiles WorkerTls(const ServerOptions& options) {
  TlsFiles tls = options.tls;
  tls.client_ca = options.worker_client_ca;
  return tls;
}

Listener WorkerListener(const ServerOptions& options, int* port) {
  return {.options = options,
          .socket = kWorkerSocket,
          .tcp = options.worker_listen,
          .tls = WorkerTls(options),
          .tcp_port = port};
}

Listener AdminListener(const ServerOptions& options) {
  return {.options = options, .socket = kAdminSocket};
}

absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(
    const Listener& listener, std::vector<TlsWatchPtr>& tls_watches,
    const std::function<void(grpc::ServerBuilder&)>& add_services) {
  const ServerOptions& options = listener.options;
  const std::string& tcp = listener.tcp;
  const std::string socket = options.run_dir + "/" + listener.socket;
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  int socket_port = 0;
  AddListener(builder, "unix:" + socket, &socket_port);
  if (!tcp.empty() && listener.tls.enabled()) {
    ASSIGN_OR_RETURN(TlsWatchPtr watch,
                     AddTlsListener(builder, tcp, listener.tcp_port, listener.tls));
    tls_watches.push_back(std::move(watch));
  } else if (!tcp.empty()) {
    AddListener(builder, tcp, listener.tcp_port);
  }
  add_services(builder);
  if (options.may_speak) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
    guards.push_back(MakeLeaderGuard(options.may_speak));
    builder.experimental().SetInterceptorCreators(std::move(guards));
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || socket_port == 0) {
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s%s%s", socket, tcp.empty() ? "" : " and ", tcp));
  }
  return server;
}

absl::StatusOr<std::unique_ptr<grpc::Server>> StartServices(
    const Listener& listener, std::vector<TlsWatchPtr>& tls_watches,
    const std::vector<grpc::Service*>& services) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(std::unique_ptr<grpc::Server> server,
                   StartServer(listener, tls_watches, [&](grpc::ServerBuilder& builder) {
                     for (grpc::Service* service : services) builder.RegisterService(service);
                     builder.SetOption(std::make_unique<ServiceNamesOption>(&names));
                   }));
  for (const std::string& name : names) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }
  return server;
}

// Renames the CA option in an error about WorkerTls. Its other files are those of the public
// listener, which are validated already.
absl::Status OfWorkerClientCa(const absl::Status& status) {
  std::string_view message(status.message().data(), status.message().size());
  constexpr std::string_view kOption = "tls_client_ca";
  if (message.substr(0, kOption.size()) != kOption) return status;
  message.remove_prefix(kOption.size());
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat("worker_client_ca", std::string(message))),
      "configuration", "worker_client_ca");
}

}  // namespace

absl::Status CheckServerOptions(const ServerOptions& options) {
  if (options.run_dir.size() > kMaxRunDirBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run_dir '%s' has %d bytes, limit is %d: choose a shorter --run-dir",
                        options.run_dir, options.run_dir.size(), kMaxRunDirBytes));
  }
  RETURN_IF_ERROR(CheckTlsFiles(options.tls));
  for (const auto& [option, address] : {std::pair("grpc_listen", options.grpc_listen),
                                        std::pair("worker_listen", options.worker_listen)}) {
    if (address.empty()) continue;
    RETURN_IF_ERROR(CheckExposure({.option = option,
                                   .address = address,
                                   .has_tls = options.tls.enabled(),
                                   .insecure_i_know = options.allow_insecure}));
  }
  const bool has_worker_tls = !options.worker_listen.empty() && options.tls.enabled();
  if (!has_worker_tls && options.worker_client_ca.empty()) return absl::OkStatus();
  if (!has_worker_tls || options.worker_client_ca.empty()) {
    const char* const missing = options.worker_listen.empty()      ? "worker_listen"
                                : options.worker_client_ca.empty() ? "worker_client_ca"
                                                                   : "tls_cert";
    return WithDetail(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s is missing: workers of other machines are known by worker_client_ca", missing)),
        "configuration", missing);
  }
  return OfWorkerClientCa(CheckTlsFiles(WorkerTls(options)));
}

absl::StatusOr<Servers> Servers::Start(const ServerOptions& options, const Services& services) {
  Servers servers;
  ASSIGN_OR_RETURN(servers.workers_, StartServices(WorkerListener(options, &servers.worker_port_),
                                                   servers.tls_watches_, {&services.workers}));
  // Reflection applies to every server that is built from here on. Gateways decide whether they
  // pass it on.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  ASSIGN_OR_RETURN(servers.engine_, StartServices(EngineListener(options, &servers.grpc_port_),
                                                  servers.tls_watches_, services.engine));
  ASSIGN_OR_RETURN(servers.admin_,
                   StartServices(AdminListener(options), servers.tls_watches_, {&services.admin}));
  return servers;
}

void Servers::Shutdown() {
  // Health checks report the shutdown before calls are refused.
  for (const auto& server : {engine_.get(), workers_.get(), admin_.get()}) {
    server->GetHealthCheckService()->SetServingStatus(false);
  }
  const auto deadline = std::chrono::system_clock::now() + kShutdownTime;
  for (const auto& server : {engine_.get(), workers_.get(), admin_.get()}) {
    server->Shutdown(deadline);
  }
}

// Refuses every call of every service.
class StandbyServers::Refusal final : public grpc::CallbackGenericService {
 public:
  explicit Refusal(std::function<std::string()> leader) : leader_(std::move(leader)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    class Reactor final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
      void OnDone() override { delete this; }
    };
    return new Reactor(NotLeader(leader_()));
  }

 private:
  const std::function<std::string()> leader_;
};

absl::StatusOr<StandbyServers> StandbyServers::Start(const ServerOptions& options,
                                                     const std::function<std::string()>& leader) {
  StandbyServers standby;
  int tcp_port = 0;
  for (const Listener& listener : {WorkerListener(options, &tcp_port),
                                   EngineListener(options, &tcp_port), AdminListener(options)}) {
    Refusal* const refusal =
        standby.refusals_.emplace_back(std::make_unique<Refusal>(leader)).get();
    ASSIGN_OR_RETURN(
        std::unique_ptr<grpc::Server> server,
        StartServer(listener, standby.tls_watches_, [refusal](grpc::ServerBuilder& builder) {
          builder.RegisterCallbackGenericService(refusal);
        }));
    for (const char* const name : kHealthNames) {
      server->GetHealthCheckService()->SetServingStatus(name, false);
    }
    server->GetHealthCheckService()->SetServingStatus(false);
    standby.servers_.push_back(std::move(server));
  }
  return standby;
}

StandbyServers::StandbyServers() = default;
StandbyServers::StandbyServers(StandbyServers&&) noexcept = default;

StandbyServers::~StandbyServers() {
  for (const auto& server : servers_) server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace lathe::engine
