// Server side of a gRPC connection.
#pragma once

#include <grpcpp/server_builder.h>

#include <string>

#include "libs/common/listener/tls_files.h"
#include "libs/common/rpc/limits.h"

namespace lathe {

// Limits and keepalive that match MakeChannel, no port reuse, and the grpc.health.v1 service
// (per server: `server->GetHealthCheckService()->SetServingStatus(false)` begins a shutdown).
void ApplyServerDefaults(grpc::ServerBuilder& builder);

// Listens on `address`, "unix:PATH" or "HOST:PORT"; with TLS when `tls` has files, which are read
// again when they change and must be usable now (CheckTlsFiles). `*port` (may be null) receives the
// bound TCP port after BuildAndStart, 0 when the address could not be bound, 1 for a unix socket. A
// stale socket file is replaced.
void AddListener(grpc::ServerBuilder& builder, const std::string& address, int* port = nullptr,
                 const TlsFiles& tls = {});

}  // namespace lathe
