// Server side of a gRPC connection.
#pragma once

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "libs/common/listener/tls_files.h"
#include "libs/common/rpc/channel.h"

namespace lathe {

// Sets limits and keepalive that match MakeChannel, turns off port reuse and compression, and
// enables the service grpc.health.v1. `server->GetHealthCheckService()->SetServingStatus(false)`
// begins a shutdown.
void ApplyServerDefaults(grpc::ServerBuilder& builder);

// Listens on `address`, "unix:PATH" or "HOST:PORT". After BuildAndStart, `*port` (may be null)
// holds the bound TCP port, 0 if the address could not be bound, 1 for a unix socket. Replaces a
// stale socket file.
void AddListener(grpc::ServerBuilder& builder, const std::string& address, int* port = nullptr);

// Watches the certificate files of a listener on its own thread.
class TlsWatch;
struct TlsWatchDeleter {
  void operator()(TlsWatch* watch) const;
};
using TlsWatchPtr = std::unique_ptr<TlsWatch, TlsWatchDeleter>;

// Like AddListener, with TLS. The files are read again when they change, while the returned object
// lives: keep it longer than the server. If the new files are not valid, the last validated ones
// stay in use. Returns the errors of LoadServerContext when the files are not valid now.
absl::StatusOr<TlsWatchPtr> AddTlsListener(grpc::ServerBuilder& builder, const std::string& address,
                                           int* port, const TlsFiles& tls);

}  // namespace lathe
