// The engine's three listeners.
#pragma once

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

struct ServerOptions {
  // Of engine.sock, admin.sock and worker.sock.
  std::string run_dir;
  // HOST:PORT of the public service beside engine.sock; empty: none.
  std::string grpc_listen;
  // Of grpc_listen; the sockets have none.
  TlsFiles tls;
  // HOST:PORT of the workers' service beside worker.sock, for those of other machines; empty: none.
  // It has the certificate of `tls`.
  std::string worker_listen;
  // PEM: workers must show a certificate that one of these has signed.
  std::string worker_client_ca;
  // Whether grpc_listen and worker_listen may be other than loopback although there is no TLS.
  bool allow_insecure = false;
  // gRPC reflection on the public service; the admin socket always has it.
  bool reflection = false;
  // Asked before anything leaves, see MakeLeaderGuard; empty: always.
  std::function<bool()> may_speak = {};
};

// What must not be served: a socket path that is too long, TLS files that cannot be used, an
// address that other machines reach without TLS, or workers there who need show no certificate.
absl::Status CheckServerOptions(const ServerOptions& options);

// What serves where the engine will, as long as another one leads: every call is refused with
// NotLeader, health says NOT_SERVING.
class StandbyServers {
 public:
  // `leader` is asked with every call: who leads, for people. As Servers::Start.
  static absl::StatusOr<StandbyServers> Start(const ServerOptions& options,
                                              const std::function<std::string()>& leader);
  StandbyServers(StandbyServers&&) noexcept;
  // The addresses are free when this returns.
  ~StandbyServers();

 private:
  class Refusal;

  StandbyServers();

  std::vector<std::unique_ptr<Refusal>> refusals_;  // of each server
  std::vector<TlsWatchPtr> tls_watches_;            // of the listeners with TLS
  std::vector<std::unique_ptr<grpc::Server>> servers_;
};

// The public services on engine.sock (and grpc_listen), lathe.v1.Admin on admin.sock,
// lathe.v1.WorkerPool on worker.sock (and worker_listen); grpc.health.v1 on all.
class Servers {
 public:
  struct Services {
    // lathe.v1.Engine and those beside it.
    std::vector<grpc::Service*> engine;
    grpc::Service& admin;
    grpc::Service& workers;
  };

  // The services must outlive the servers. Unavailable names the address that cannot be bound.
  static absl::StatusOr<Servers> Start(const ServerOptions& options, const Services& services);

  // Refuses new calls and ends open ones, at the latest after a second.
  void Shutdown();

  // Of grpc_listen; 0 without it.
  int grpc_port() const { return grpc_port_; }
  // Of worker_listen; 0 without it.
  int worker_port() const { return worker_port_; }

 private:
  std::vector<TlsWatchPtr> tls_watches_;  // of the listeners with TLS
  std::unique_ptr<grpc::Server> engine_;
  std::unique_ptr<grpc::Server> workers_;
  std::unique_ptr<grpc::Server> admin_;
  int grpc_port_ = 0;
  int worker_port_ = 0;
};

}  // namespace lathe::engine
