// Client side of a gRPC connection.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "libs/common/rpc/limits.h"

namespace lathe {

// A channel to `address`, "unix:PATH" or "HOST:PORT", without TLS. Connects when first used and
// again for ever, between 100 ms and 2 s apart; messages up to kMaxMessageBytes both ways. Every
// call makes a connection of its own. Proxies of the environment are ignored.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// Gives a call `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace lathe
