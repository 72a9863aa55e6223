// Authentication of rpcs.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>

#include "absl/status/statusor.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/rpc_access.h"

namespace lathe::engine {

inline constexpr char kApiKeyHeader[] = "x-api-key";

// Returns the owner of the key in the metadata. Unauthenticated: no valid key. PermissionDenied
// ("missing_scope"): the key has none of the scopes of `access`, which the text names.
absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context,
                                        RpcAccess access);

// Authenticates a unary call, runs `read`, and ends the call with the resulting status.
grpc::ServerUnaryReactor* AnswerCall(const KeyRing& keys, grpc::CallbackServerContext* context,
                                     RpcAccess access,
                                     const std::function<absl::Status(const Caller&)>& read);

}  // namespace lathe::engine
