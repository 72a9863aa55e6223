#include "services/engine/rpc/authenticated_call.h"

#include <grpcpp/server_context.h>

#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {

absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context,
                                        RpcAccess access) {
  const auto header = context.client_metadata().find(kApiKeyHeader);
  std::string_view key;
  if (header != context.client_metadata().end()) {
    key = std::string_view(header->second.data(), header->second.size());
  }
  ASSIGN_OR_RETURN(Caller caller, keys.Authenticate(key));
  if (!caller.scopes.HasAny(access.scopes())) {
    return WithDetail(absl::PermissionDeniedError(
                          absl::StrFormat("the API key has scope %s, this call needs %s",
                                          absl::StrJoin(caller.scopes.Words(), ", "),
                                          absl::StrJoin(access.scopes().Words(), " or "))),
                      "missing_scope");
  }
  return caller;
}

grpc::ServerUnaryReactor* AnswerCall(const KeyRing& keys, grpc::CallbackServerContext* context,
                                     RpcAccess access,
                                     const std::function<absl::Status(const Caller&)>& read) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  reactor->Finish(ToGrpcStatus(caller.ok() ? read(*caller) : caller.status()));
  return reactor;
}

}  // namespace lathe::engine
