// lathe.v1.Tenants: the caller's own key and tokens for it; for administrators keys, quotas and the
// audit log.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

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
  Reactor* ListTenantKeys(Context* context, const v1::ListTenantKeysRequest* request,
                          v1::ListTenantKeysResponse* response) override;
  Reactor* CreateTenantKey(Context* context, const v1::CreateKeyRequest* request,
                           v1::CreateKeyResponse* response) override;
  Reactor* RevokeTenantKey(Context* context, const v1::RevokeKeyRequest* request,
                           v1::RevokeKeyResponse* response) override;
  Reactor* RotateTenantKey(Context* context, const v1::RotateKeyRequest* request,
                           v1::RotateKeyResponse* response) override;
  Reactor* ListTenants(Context* context, const v1::ListTenantsRequest* request,
                       v1::ListTenantsResponse* response) override;
  Reactor* SetTenantQuota(Context* context, const v1::SetQuotaRequest* request,
                          v1::SetQuotaResponse* response) override;

 private:
  absl::Status DescribeAudit(const Caller& caller, const v1::ListAuditRequest& request,
                             v1::ListAuditResponse& response);
  absl::Status DescribeKeys(const Caller& caller, const v1::ListTenantKeysRequest& request,
                            v1::ListTenantKeysResponse& response);
  absl::Status MakeKey(const Caller& caller, const v1::CreateKeyRequest& request,
                       v1::CreateKeyResponse& response);
  // Returns OK if the caller administers the key. NotFound: it is a key of another tenant, or
  // absent. PermissionDenied ("missing_scope"): it is an operator's key, and the caller is none.
  absl::Status CheckAdministers(const Caller& caller, const std::string& key_id) const;

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
  // Revocations alone: neither reads nor new keys hold them up.
  ReadThreads revocations_{{.num_threads = 1}};
};

}  // namespace lathe::engine
