// Server side of a gRPC connection.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "libs/common/listener/tls_files.h"
#include "libs/common/rpc/limits.h"

namespace lathe {

// Limits and keepalive that match MakeChannel, no port reuse, and the grpc.health.v1 service
// (per server: `server->GetHealthCheckService()->SetServingStatus(false)` begins a shutdown).
void ApplyServerDefaults(grpc::ServerBuilder& builder);

// Listens on `address`, "unix:PATH" or "HOST:PORT". `*port` (may be null) receives the bound TCP
// port after BuildAndStart, 0 when the address could not be bound, 1 for a unix socket. A stale
// socket file is replaced.
void AddListener(grpc::ServerBuilder& builder, const std::string& address, int* port = nullptr);

// Looks after the certificate files of a listener, on a thread of its own.
class TlsWatch;
struct TlsWatchDeleter {
  void operator()(TlsWatch* watch) const;
};
using TlsWatchPtr = std::unique_ptr<TlsWatch, TlsWatchDeleter>;

// As above with TLS. The files are read again when they change, while the returned object lives:
// keep it longer than the server. Files that cannot be used then leave the last good ones in use;
// that they can be used now is a precondition, with the errors of LoadServerContext.
absl::StatusOr<TlsWatchPtr> AddTlsListener(grpc::ServerBuilder& builder, const std::string& address,
                                           int* port, const TlsFiles& tls);

}  // namespace lathe
