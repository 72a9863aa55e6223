// Authentication of rpcs, and unary rpcs on behalf of their caller: AnswerCall and ReadCall for
// those that only read, ChangeCall and ReadAndChangeCall for those that change state.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "libs/common/rpc/status.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/rpc/rpc_access.h"
#include "services/engine/runtime/result_encoder.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

inline constexpr char kApiKeyHeader[] = "x-api-key";

// Returns OK if the peer may call on behalf of others, see KeyRing::CheckPeer. AuthenticateCall
// checks it first; rpcs without a key do so themselves.
absl::Status CheckPeer(const KeyRing& keys, const grpc::CallbackServerContext& context);

// Returns the owner of the key or the session in the metadata. Unauthenticated: neither is valid.
// InvalidArgument ("two_credentials"): both are there. PermissionDenied ("missing_scope"): none of
// the scopes of `access`, which the text names. FailedPrecondition ("needs_api_key"): `access` is
// for keys, and a session was presented.
absl::StatusOr<Caller> AuthenticateCall(const KeyRing& keys,
                                        const grpc::CallbackServerContext& context,
                                        RpcAccess access);

// Returns the owner of the key in the metadata, where neither a session nor a token will do. Also
// checks the peer. FailedPrecondition ("needs_api_key"): a token was presented.
absl::StatusOr<Caller> AuthenticateKey(const KeyRing& keys,
                                       const grpc::CallbackServerContext& context);

// Returns the session in the metadata; empty: none.
std::string_view UserSessionOf(const grpc::CallbackServerContext& context);

// Records the deliveries that the metadata reports, before the call that follows them.
void RecordDeliveries(Runtime& runtime, const Caller& caller,
                      const grpc::CallbackServerContext& context);

// Returns the span of the request that a call submits; no context: nothing is traced.
SpanContext SpanOf(const Runtime& runtime, const grpc::CallbackServerContext& context);

// Returns the owner of the key that asked for a signed link with `access`. OutOfRange
// ("link_ended"): the key has expired or was revoked, or may not ask for such a link any more.
absl::StatusOr<Caller> AuthenticateLink(const KeyRing& keys, const std::string& key_id,
                                        RpcAccess access);

// Returns the owner of a weights access token; nullopt if no token is given. PermissionDenied
// ("bad_weights_access_token"): the token is invalid. PermissionDenied ("missing_scope"): the token
// has none of the scopes in `needed`.
absl::StatusOr<std::optional<Caller>> AuthenticateReader(const KeyRing& keys,
                                                         const std::string& weights_access_token,
                                                         Scopes needed);

// Returns the owner of a credential that came in a message of a stream.
absl::StatusOr<Caller> AuthenticateMessage(const KeyRing& keys, const std::string& credential,
                                           Scopes needed);

// Authenticates a unary call, runs `read`, and ends the call with the resulting status. Reads
// of the store belong into ReadCall.
grpc::ServerUnaryReactor* AnswerCall(const KeyRing& keys, grpc::CallbackServerContext* context,
                                     RpcAccess access,
                                     const std::function<absl::Status(const Caller&)>& read);

// As AnswerCall, for a `read` that may read the store: it runs on one of `reads`. The key must be
// valid when the call comes and when its turn has come. The objects that
// it borrows must live until the call ends. Variables of the caller's stack do not.
grpc::ServerUnaryReactor* ReadCall(ReadThreads& reads, const KeyRing& keys,
                                   grpc::CallbackServerContext* context, RpcAccess access,
                                   std::function<absl::Status(const Caller&)> read);

// Runs `read` for `tenant_id` on one of `reads`, then ends the call with its status.
void RunRead(ReadThreads& reads, const std::string& tenant_id, grpc::ServerUnaryReactor* reactor,
             std::function<absl::Status()> read);

// Submits a change. `fill` copies the core's answer into the response before the call ends. Ends
// the call at once if `event` is an error. `span` as in Runtime::Call.
template <typename CoreEvent>
void SubmitChange(Runtime& runtime, grpc::ServerUnaryReactor* reactor,
                  absl::StatusOr<CoreEvent> event, std::function<void(const Answer&)> fill,
                  const SpanContext& span = {}) {
  if (!event.ok()) {
    reactor->Finish(ToGrpcStatus(event.status()));
    return;
  }
  runtime.Call(
      *std::move(event),
      [reactor, fill = std::move(fill)](const Answer& answer) {
        if (answer.error) {
          reactor->Finish(ToGrpcStatus(ToStatus(*answer.error)));
          return;
        }
        fill(answer);
        reactor->Finish(grpc::Status::OK);
      },
      span);
}

// Authenticates a call and submits its change. `make` returns the core's event or an error. Called
// once per call, on any thread. `context` and the objects that the functions borrow live until the
// call ends.
template <typename CoreEvent>
void RunChange(Runtime& runtime, const KeyRing& keys, grpc::CallbackServerContext* context,
               grpc::ServerUnaryReactor* reactor, RpcAccess access,
               const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
               std::function<void(const Answer&)> fill) {
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  SubmitChange<CoreEvent>(runtime, reactor, caller.ok() ? make(*caller) : caller.status(),
                          std::move(fill), SpanOf(runtime, *context));
}

// Calls RunChange on this thread with the default reactor, which it returns.
template <typename CoreEvent>
grpc::ServerUnaryReactor* ChangeCall(
    Runtime& runtime, const KeyRing& keys, grpc::CallbackServerContext* context, RpcAccess access,
    const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
    std::function<void(const Answer&)> fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  RunChange<CoreEvent>(runtime, keys, context, reactor, access, make, std::move(fill));
  return reactor;
}

// As ChangeCall, for a `make` that reads the store: it runs on one of `reads`. The key must be
// valid when the call comes and when its turn has come.
template <typename CoreEvent>
grpc::ServerUnaryReactor* ReadAndChangeCall(
    ReadThreads& reads, Runtime& runtime, const KeyRing& keys, grpc::CallbackServerContext* context,
    RpcAccess access, std::function<absl::StatusOr<CoreEvent>(const Caller&)> make,
    std::function<void(const Answer&)> fill) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Caller> caller = AuthenticateCall(keys, *context, access);
  absl::Status status = caller.status();
  if (caller.ok()) {
    const auto event = std::make_shared<absl::StatusOr<CoreEvent>>();
    status = reads.TryRun(
        caller->tenant_id,
        [event, &keys, context, access, make = std::move(make)] {
          const absl::StatusOr<Caller> now = AuthenticateCall(keys, *context, access);
          *event = now.ok() ? make(*now) : now.status();
        },
        [event, &runtime, context, reactor, fill = std::move(fill)] {
          SubmitChange<CoreEvent>(runtime, reactor, std::move(*event), fill,
                                  SpanOf(runtime, *context));
        });
  }
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace lathe::engine
