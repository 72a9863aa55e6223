// lathe.v1.Tenants: the caller's own key, tokens for it, and the tenant's audit log.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "protos/lathe/v1/tenants.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service on gRPC's threads. Authenticates as EngineService does.
class TenantsService final : public v1::Tenants::CallbackService {
 public:
  // All must outlive this and its server.
  TenantsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads);
  ~TenantsService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* GetOwnKey(Context* context, const v1::GetOwnKeyRequest* request,
                     v1::GetOwnKeyResponse* response) override;
  Reactor* RevokeOwnKey(Context* context, const v1::RevokeOwnKeyRequest* request,
                        v1::RevokeOwnKeyResponse* response) override;
  Reactor* ExchangeToken(Context* context, const v1::ExchangeTokenRequest* request,
                         v1::ExchangeTokenResponse* response) override;
  Reactor* ListAudit(Context* context, const v1::ListAuditRequest* request,
                     v1::ListAuditResponse* response) override;

 private:
  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
};

}  // namespace lathe::engine
