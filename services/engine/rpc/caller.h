// Who makes an rpc.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "services/engine/auth/key_ring.h"

namespace lathe::engine {

inline constexpr char kApiKeyHeader[] = "x-api-key";

// Every scope: any key that is valid will do.
inline constexpr Scopes kAnyScope =
    Scopes(Scope::kTrain) | Scope::kSample | Scope::kRead | Scope::kCheckpointsWrite;

// The owner of the metadata's key. Unauthenticated without a valid key; PermissionDenied
// ("missing_scope", naming them) when it has none of `scopes`.
absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context, Scopes scopes);

}  // namespace lathe::engine
