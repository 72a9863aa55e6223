// lathe.v1.Accounts: projects, session search, usage, the state of the service.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/accounts.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service. Authenticates as EngineService does.
class AccountsService final : public v1::Accounts::CallbackService {
 public:
  // All must outlive this and its server.
  AccountsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads,
                  AdminService::AttachedGroups attached_groups);
  ~AccountsService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* AssignSessionProject(Context* context, const v1::AssignSessionProjectRequest* request,
                                v1::AssignSessionProjectResponse* response) override;
  Reactor* ListProjectRuns(Context* context, const v1::ListProjectRunsRequest* request,
                           v1::ListRunsResponse* response) override;
  Reactor* SearchSessions(Context* context, const v1::SearchSessionsRequest* request,
                          v1::SearchSessionsResponse* response) override;
  Reactor* ListUsage(Context* context, const v1::ListUsageRequest* request,
                     v1::ListUsageResponse* response) override;
  Reactor* GetCheckpointStorage(Context* context, const v1::GetCheckpointStorageRequest* request,
                                v1::GetCheckpointStorageResponse* response) override;
  Reactor* GetServiceStatus(Context* context, const v1::GetServiceStatusRequest* request,
                            v1::GetServiceStatusResponse* response) override;

 private:
  absl::Status Search(const Caller& caller, const v1::SearchSessionsRequest& request,
                      v1::SearchSessionsResponse& response);
  // Replaces the time in a cursor, which may be rounded, by the exact one of the session it names.
  absl::Status RefineCursor(const Caller& caller, SessionQuery& query);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
  const AdminService::AttachedGroups attached_groups_;
  // One tenant may search without pause.
  ReadThreads searches_{{.num_threads = 2, .is_background = true}};
};

}  // namespace lathe::engine
