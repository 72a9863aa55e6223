// The gateway's gRPC listener.
#pragma once

#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/listener/tls_files.h"
#include "libs/common/rpc/server.h"
#include "services/api-gateway/grpc/forwarder.h"

namespace lathe::gateway {

// Serves the forwarded services and grpc.health.v1. Thread-safe.
class GrpcServer {
 public:
  struct Options {
    std::string address;  // HOST:PORT; port 0 takes a free port
    TlsFiles tls;
    // Most bytes of a request.
    int64_t max_message_bytes = 0;
    // Bytes of memory of all connections, above which gRPC slows them down and ends calls.
    int64_t max_memory_bytes = 0;
    // Longest time from a connection to the end of its handshakes.
    absl::Duration handshake_timeout;
    // Longest time of a connection without calls.
    absl::Duration idle_timeout;
  };

  // Most calls of one connection that are open at a time. Further calls wait in the client.
  static constexpr int kMaxCallsPerConnection = 1000;

  // Bytes that a call may send before the gateway reads them.
  static constexpr int kWindowBytes = 256 << 10;

  // Unavailable if the address cannot be bound. Errors of AddTlsListener.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Options& options,
                                                           ForwarderContext context);
  // Ends calls that are still open.
  ~GrpcServer();

  int port() const { return port_; }
  // Sets what health checks answer, for "" and for each service.
  void SetServing(bool is_serving);
  // Refuses new calls, and returns when all have ended. Cancels those that last longer than
  // `patience`. Called once at most.
  void Shutdown(absl::Duration patience);

 private:
  explicit GrpcServer(ForwarderContext context) : forwarder_(std::move(context)) {}

  Forwarder forwarder_;
  TlsWatchPtr tls_watch_;  // null without TLS
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace lathe::gateway
