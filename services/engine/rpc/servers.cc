#include "services/engine/rpc/servers.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "absl/strings/str_format.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/rpc/server.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/service_names.h"

namespace lathe::engine {
namespace {

// sun_path has 108 bytes; the rest is for "/worker.sock".
constexpr size_t kMaxRunDirBytes = 90;
constexpr auto kShutdownTime = std::chrono::seconds(1);

absl::StatusOr<std::unique_ptr<grpc::Server>> StartServer(
    const std::vector<grpc::Service*>& services, const std::string& socket, const std::string& tcp,
    const TlsFiles& tls, int* tcp_port, TlsWatchPtr* tls_watch) {
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  int socket_port = 0;
  AddListener(builder, "unix:" + socket, &socket_port);
  if (!tcp.empty() && tls.enabled()) {
    ASSIGN_OR_RETURN(*tls_watch, AddTlsListener(builder, tcp, tcp_port, tls));
  } else if (!tcp.empty()) {
    AddListener(builder, tcp, tcp_port);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::string> names;
  builder.SetOption(std::make_unique<ServiceNamesOption>(&names));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || socket_port == 0) {
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s%s%s", socket, tcp.empty() ? "" : " and ", tcp));
  }
  for (const std::string& name : names) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }
  return server;
}

}  // namespace

absl::Status CheckServerOptions(const ServerOptions& options) {
  if (options.run_dir.size() > kMaxRunDirBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run_dir '%s' has %d bytes, limit is %d: choose a shorter --run-dir",
                        options.run_dir, options.run_dir.size(), kMaxRunDirBytes));
  }
  RETURN_IF_ERROR(CheckTlsFiles(options.tls));
  if (options.grpc_listen.empty()) return absl::OkStatus();
  return CheckExposure({.option = "grpc_listen",
                        .address = options.grpc_listen,
                        .has_tls = options.tls.enabled(),
                        .insecure_i_know = options.allow_insecure});
}

absl::StatusOr<Servers> Servers::Start(const ServerOptions& options, const Services& services) {
  // The plugin goes into every server that is built after this call.
  const auto add_reflection = [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); };
  Servers servers;
  ASSIGN_OR_RETURN(
      servers.workers_,
      StartServer({&services.workers}, options.run_dir + "/worker.sock", "", {}, nullptr, nullptr));
  if (options.reflection) add_reflection();
  ASSIGN_OR_RETURN(servers.engine_, StartServer(services.engine, options.run_dir + "/engine.sock",
                                                options.grpc_listen, options.tls,
                                                &servers.grpc_port_, &servers.tls_watch_));
  if (!options.reflection) add_reflection();
  ASSIGN_OR_RETURN(servers.admin_, StartServer({&services.admin}, options.run_dir + "/admin.sock",
                                               "", {}, nullptr, nullptr));
  return servers;
}

void Servers::Shutdown() {
  // Probes are told before callers are refused.
  for (const auto& server : {engine_.get(), workers_.get(), admin_.get()}) {
    server->GetHealthCheckService()->SetServingStatus(false);
  }
  const auto deadline = std::chrono::system_clock::now() + kShutdownTime;
  for (const auto& server : {engine_.get(), workers_.get(), admin_.get()}) {
    server->Shutdown(deadline);
  }
}

}  // namespace lathe::engine
