#include "services/engine/rpc/authenticated_call.h"

#include <grpcpp/server_context.h>

#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/api_key/user_session.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/cluster_secret.h"
#include "libs/common/rpc/delivered_header.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr char kReaderField[] = "weights_access_token";

// `what` names the credential.
absl::Status CheckScopes(const Caller& caller, Scopes needed, const char* what,
                         const char* field = "") {
  if (caller.scopes.HasAny(needed)) return absl::OkStatus();
  return WithDetail(
      absl::PermissionDeniedError(absl::StrFormat("%s has scope %s, this call needs %s", what,
                                                  absl::StrJoin(caller.scopes.Words(), ", "),
                                                  absl::StrJoin(needed.Words(), " or "))),
      "missing_scope", field);
}

// Returns an empty text if the call has no such metadata.
std::string_view MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto header = context.client_metadata().find(name);
  if (header == context.client_metadata().end()) return {};
  return {header->second.data(), header->second.size()};
}

absl::Status NeedsApiKey() {
  return WithDetail(absl::FailedPreconditionError("this call needs an API key"), "needs_api_key");
}

}  // namespace

absl::Status CheckPeer(const KeyRing& keys, const grpc::CallbackServerContext& context) {
  return keys.CheckPeer(context.peer(), MetadataOf(context, kGatewaySecretHeader));
}

absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context,
                                        RpcAccess access) {
  RETURN_IF_ERROR(CheckPeer(keys, context));
  const std::string_view key = MetadataOf(context, kApiKeyHeader);
  const std::string_view session = UserSessionOf(context);
  if (!key.empty() && !session.empty()) {
    return WithDetail(absl::InvalidArgumentError("the call has an API key and a session"),
                      "two_credentials");
  }
  ASSIGN_OR_RETURN(Caller caller,
                   session.empty() ? keys.Authenticate(key) : keys.AuthenticateSession(session));
  if (caller.has_session && access.is_for_keys()) {
    return NeedsApiKey();
  }
  RETURN_IF_ERROR(
      CheckScopes(caller, access.scopes(), caller.has_session ? "the session" : "the API key"));
  return caller;
}

absl::StatusOr<Caller> AuthenticateKey(const KeyRing& keys,
                                       const grpc::CallbackServerContext& context) {
  RETURN_IF_ERROR(CheckPeer(keys, context));
  const std::string_view key = MetadataOf(context, kApiKeyHeader);
  if (TokenSigner::IsToken(key)) return NeedsApiKey();
  return keys.Authenticate(key);
}

std::string_view UserSessionOf(const grpc::CallbackServerContext& context) {
  return MetadataOf(context, kUserSessionHeader);
}

absl::StatusOr<Caller> AuthenticateMessage(const KeyRing& keys, const std::string& credential,
                                           Scopes needed) {
  ASSIGN_OR_RETURN(Caller caller, keys.AuthenticateAny(credential));
  RETURN_IF_ERROR(CheckScopes(caller, needed, caller.has_session ? "the session" : "the API key"));
  return caller;
}

void RecordDeliveries(Runtime& runtime, const Caller& caller,
                      const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kDeliveredHeader);
  for (auto it = begin; it != end; ++it) {
    runtime.RecordDelivered(caller.tenant_id, std::string(it->second.data(), it->second.size()));
  }
}

SpanContext SpanOf(const Runtime& runtime, const grpc::CallbackServerContext& context) {
  const std::string_view traceparent = MetadataOf(context, kTraceparent);
  SpanContext span = runtime.BeginSpan(traceparent);
  if (!span.is_valid()) return span;
  // CheckPeer lets gateways call, and not their clients. The gateway has decided already.
  if (const auto parent = ParseTraceparent(traceparent)) span.is_sampled = parent->is_sampled;
  return span;
}

absl::StatusOr<Caller> AuthenticateLink(const KeyRing& keys, const std::string& key_id,
                                        RpcAccess access) {
  absl::StatusOr<Caller> caller = keys.FindCaller(key_id);
  if (caller.ok() && caller->scopes.HasAny(access.scopes())) return caller;
  return WithDetail(absl::OutOfRangeError("the link has ended with the API key that asked for it"),
                    "link_ended", "token");
}

absl::StatusOr<std::optional<Caller>> AuthenticateReader(const KeyRing& keys,
                                                         const std::string& weights_access_token,
                                                         Scopes needed) {
  if (weights_access_token.empty()) return std::nullopt;
  absl::StatusOr<Caller> reader = keys.Authenticate(weights_access_token);
  if (!reader.ok()) {
    // PermissionDenied and not Unauthenticated, because the caller's own key is valid.
    return WithDetail(absl::PermissionDeniedError("weights_access_token is not a valid credential"),
                      "bad_weights_access_token", kReaderField);
  }
  RETURN_IF_ERROR(CheckScopes(*reader, needed, kReaderField, kReaderField));
  return *std::move(reader);
}

grpc::ServerUnaryReactor* AnswerCall(const KeyRing& keys, grpc::CallbackServerContext* context,
                                     RpcAccess access,
                                     const std::function<absl::Status(const Caller&)>& read) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  reactor->Finish(ToGrpcStatus(caller.ok() ? read(*caller) : caller.status()));
  return reactor;
}

grpc::ServerUnaryReactor* ReadCall(ReadThreads& reads, const KeyRing& keys,
                                   grpc::CallbackServerContext* context, RpcAccess access,
                                   std::function<absl::Status(const Caller&)> read) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  if (caller.ok()) {
    RunRead(reads, caller->tenant_id, reactor, [&keys, context, access, read = std::move(read)] {
      const absl::StatusOr<Caller> now = AuthenticateCall(keys, *context, access);
      return now.ok() ? read(*now) : now.status();
    });
  } else {
    reactor->Finish(ToGrpcStatus(caller.status()));
  }
  return reactor;
}

void RunRead(ReadThreads& reads, const std::string& tenant_id, grpc::ServerUnaryReactor* reactor,
             std::function<absl::Status()> read) {
  const auto result = std::make_shared<absl::Status>();
  const absl::Status status = reads.TryRun(
      tenant_id, [result, read = std::move(read)] { *result = read(); },
      [result, reactor] { reactor->Finish(ToGrpcStatus(*result)); });
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
}

}  // namespace lathe::engine
