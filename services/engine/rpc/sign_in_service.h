// lathe.v1.SignIn: sessions of browsers, made for gateways.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/sign_in.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service. Its calls name whom a gateway has identified, so it answers gateways
// alone (KeyRing::CheckPeer), and gateways do not forward calls to it. Calls that write run on the
// threads for reads, where all sign-ins together have the share of one tenant.
class SignInService final : public v1::SignIn::CallbackService {
 public:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  // The arguments must outlive this and its server.
  SignInService(Runtime& runtime, KeyRing& keys, ReadThreads& reads)
      : runtime_(runtime), keys_(keys), reads_(reads) {}

  Reactor* BeginUserSession(Context* context, const v1::BeginUserSessionRequest* request,
                            v1::BeginSessionResponse* response) override;
  Reactor* BeginKeySession(Context* context, const v1::BeginKeySessionRequest* request,
                           v1::BeginSessionResponse* response) override;
  Reactor* RedeemTicket(Context* context, const v1::RedeemTicketRequest* request,
                        v1::BeginSessionResponse* response) override;
  Reactor* GetSealingKeys(Context* context, const v1::GetSealingKeysRequest* request,
                          v1::GetSealingKeysResponse* response) override;

 private:
  // Runs `work` if the peer is a gateway, and ends the call with its status.
  Reactor* Serve(Context* context, std::function<absl::Status()> work);
  absl::StatusOr<UserBook::NewSession> BeginForUser(const v1::BeginUserSessionRequest& request);
  absl::Status ReadSealingKeys(v1::GetSealingKeysResponse& response);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
};

}  // namespace lathe::engine
