// lathe.v1.Users: the caller's own session, and users with their roles and sessions.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/users.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service. Authenticates as EngineService does. Lookups are in memory; changes run
// on the threads for reads.
class UsersService final : public v1::Users::CallbackService {
 public:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  // The arguments must outlive this and its server.
  UsersService(Runtime& runtime, KeyRing& keys, ReadThreads& reads)
      : runtime_(runtime), keys_(keys), reads_(reads) {}

  Reactor* GetOwnSession(Context* context, const v1::GetOwnSessionRequest* request,
                         v1::GetOwnSessionResponse* response) override;
  Reactor* EndOwnSession(Context* context, const v1::EndOwnSessionRequest* request,
                         v1::EndOwnSessionResponse* response) override;
  Reactor* ListUsers(Context* context, const v1::ListUsersRequest* request,
                     v1::ListUsersResponse* response) override;
  Reactor* UpdateUser(Context* context, const v1::UpdateUserRequest* request,
                      v1::UpdateUserResponse* response) override;
  Reactor* ListUserSessions(Context* context, const v1::ListUserSessionsRequest* request,
                            v1::ListUserSessionsResponse* response) override;
  Reactor* EndUserSession(Context* context, const v1::EndUserSessionRequest* request,
                          v1::EndUserSessionResponse* response) override;

 private:
  // Returns NotFound if the caller may not see the user, or there is none.
  absl::StatusOr<UserRow> FindVisible(const Caller& caller, const std::string& user_id) const;
  absl::Status Update(const Caller& caller, const v1::UpdateUserRequest& request,
                      v1::UpdateUserResponse& response);
  void Describe(const UserRow& row, v1::User* user) const;

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
};

}  // namespace lathe::engine
