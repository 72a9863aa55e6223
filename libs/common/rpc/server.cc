#include "libs/common/rpc/server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <unistd.h>

namespace lathe {

void ApplyServerDefaults(grpc::ServerBuilder& builder) {
  grpc::EnableDefaultHealthCheckService(true);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The clients' pings come every 10 s and must not count as abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

void AddListener(grpc::ServerBuilder& builder, const std::string& address, int* port) {
  constexpr char kUnix[] = "unix:";
  if (address.rfind(kUnix, 0) == 0) unlink(address.c_str() + sizeof(kUnix) - 1);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), port);
}

}  // namespace lathe
