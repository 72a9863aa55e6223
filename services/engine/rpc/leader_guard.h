// Keeps what only the leader may say within this process.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace lathe::engine {

// Unavailable ("not_leader"), naming `leader`: the caller should ask another engine.
absl::Status NotLeader(std::string_view leader);

// Asks `may_speak` before every message and every status that leaves a server. When it says no, a
// call ends with NotLeader, a stream without another message: what was decided, or read, by a
// leader that has been replaced since does not go out, whichever thread had it in hand. Any thread.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeLeaderGuard(
    std::function<bool()> may_speak);

}  // namespace lathe::engine
