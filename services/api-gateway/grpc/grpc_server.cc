#include "services/api-gateway/grpc/grpc_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options,
                                                              ForwarderContext context) {
  std::unique_ptr<GrpcServer> server(new GrpcServer(std::move(context)));
  grpc::ServerBuilder builder;
  ApplyServerDefaults(builder);
  builder.SetMaxReceiveMessageSize(static_cast<int>(
      std::min<int64_t>(options.max_message_bytes, std::numeric_limits<int>::max())));
  grpc::ResourceQuota quota("gateway");
  quota.Resize(static_cast<size_t>(options.max_memory_bytes));
  builder.SetResourceQuota(quota);
  const auto milliseconds = [](absl::Duration time) {
    return static_cast<int>(absl::ToInt64Milliseconds(time));
  };
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  // gRPC would let the window of each call grow to 16 MiB, which an unread call keeps filled.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.idle_timeout));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             milliseconds(options.handshake_timeout));
  if (options.tls.enabled()) {
    ASSIGN_OR_RETURN(server->tls_watch_,
                     AddTlsListener(builder, options.address, &server->port_, options.tls));
  } else {
    AddListener(builder, options.address, &server->port_);
  }
  builder.RegisterCallbackGenericService(&server->forwarder_);
  server->server_ = builder.BuildAndStart();
  if (!server->server_ || server->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.address, " for gRPC"));
  }
  server->SetServing(true);
  return server;
}

GrpcServer::~GrpcServer() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
}

void GrpcServer::SetServing(bool is_serving) {
  grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
  health.SetServingStatus(is_serving);
  for (const std::string& name : forwarder_.service_names()) {
    health.SetServingStatus(name, is_serving);
  }
}

void GrpcServer::Shutdown(absl::Duration patience) {
  SetServing(false);
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
}

}  // namespace lathe::gateway
