// Who makes an rpc.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>

#include "absl/status/statusor.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/rpc_access.h"

namespace lathe::engine {

inline constexpr char kApiKeyHeader[] = "x-api-key";

// The owner of the metadata's key. Unauthenticated without a valid key; PermissionDenied
// ("missing_scope", naming them) when it has none of the scopes that `access` wants.
absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context,
                                        RpcAccess access);

// Authenticates a unary call and ends it with what `read` returns, or with the refusal.
grpc::ServerUnaryReactor* AnswerCall(const KeyRing& keys, grpc::CallbackServerContext* context,
                                     RpcAccess access,
                                     const std::function<absl::Status(const Caller&)>& read);

}  // namespace lathe::engine
