// Prevents a process that does not lead from sending responses.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace lathe::engine {

// Returns Unavailable ("not_leader") that names `leader`. The caller should try another engine.
absl::Status NotLeader(std::string_view leader);

// Creates an interceptor that calls `may_speak` before every outgoing message and status. If it
// returns false, a unary call ends with NotLeader, and a stream ends without another message. A
// replaced leader thus sends no decision or read, whichever thread made it. Any thread.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeLeaderGuard(
    std::function<bool()> may_speak);

}  // namespace lathe::engine
