// The engine's three listeners.
#pragma once

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/server.h>
#include <grpcpp/support/server_callback.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/common/listener/tls_files.h"
#include "libs/common/rpc/server.h"

namespace lathe::engine {

// Sets `names` to the full names of all services. `names` must outlive BuildAndStart.
class ServiceNamesOption final : public grpc::ServerBuilderOption {
 public:
  explicit ServiceNamesOption(std::vector<std::string>* names) : names_(names) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override;

 private:
  std::vector<std::string>* const names_;
};

// Addresses and security of the engine's listeners.
struct ServerOptions {
  // Directory of engine.sock, admin.sock and worker.sock.
  std::string run_dir;
  // HOST:PORT of the public service beside engine.sock; empty: none.
  std::string grpc_listen;
  // Certificate and key of grpc_listen. The unix sockets use no TLS.
  TlsFiles tls;
  // HOST:PORT of the worker service beside worker.sock, for workers on other machines; empty: none.
  // It uses the certificate of `tls`.
  std::string worker_listen;
  // PEM file of CA certificates, one of which must have signed a worker's certificate. Empty:
  // workers need none.
  std::string worker_client_ca;
  // Allows grpc_listen and worker_listen on other addresses than loopback without TLS.
  bool allow_insecure = false;
  // Called before every outgoing message, see MakeLeaderGuard. Empty: always allowed.
  std::function<bool()> may_speak = {};
};

// Returns an error for a socket path that is too long, unusable TLS files, a non-loopback address
// without TLS, or a worker listener there that requires no client certificate.
absl::Status CheckServerOptions(const ServerOptions& options);

// Servers of a standby, on the addresses the engine will use. They refuse every call with
// NotLeader, and health says NOT_SERVING.
class StandbyServers {
 public:
  // `leader` is called with every rpc and describes the leader for people. Otherwise as
  // Servers::Start.
  static absl::StatusOr<StandbyServers> Start(const ServerOptions& options,
                                              const std::function<std::string()>& leader);
  StandbyServers(StandbyServers&&) noexcept;
  // Frees the addresses before it returns.
  ~StandbyServers();

 private:
  class Refusal;

  StandbyServers();

  std::vector<std::unique_ptr<Refusal>> refusals_;  // one per server
  std::vector<TlsWatchPtr> tls_watches_;            // one per TLS listener
  std::vector<std::unique_ptr<grpc::Server>> servers_;
};

// The engine's servers: public services on engine.sock (and grpc_listen), lathe.v1.Admin on
// admin.sock, lathe.v1.WorkerPool on worker.sock (and worker_listen). All serve grpc.health.v1.
class Servers {
 public:
  struct Services {
    // lathe.v1.Engine and the other public services.
    std::vector<grpc::Service*> engine;
    grpc::Service& admin;
    grpc::Service& workers;
  };

  // The services must outlive the servers. Unavailable: an address, which the text names, cannot be
  // bound.
  static absl::StatusOr<Servers> Start(const ServerOptions& options, const Services& services);

  // Refuses new calls and ends open ones within a second.
  void Shutdown();

  // Port of grpc_listen; 0 without it.
  int grpc_port() const { return grpc_port_; }
  // Port of worker_listen; 0 without it.
  int worker_port() const { return worker_port_; }

 private:
  std::vector<TlsWatchPtr> tls_watches_;  // one per TLS listener
  std::unique_ptr<grpc::Server> engine_;
  std::unique_ptr<grpc::Server> workers_;
  std::unique_ptr<grpc::Server> admin_;
  int grpc_port_ = 0;
  int worker_port_ = 0;
};

}  // namespace lathe::engine
