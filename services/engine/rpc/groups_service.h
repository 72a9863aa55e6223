// lathe.v1.Groups: what a group of workers holds, and taking it out of service.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "protos/lathe/v1/groups.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Models of an answer if the request names no number, and at most.
inline constexpr int64_t kDefaultGroupModels = 100;
inline constexpr int64_t kMaxGroupModels = 1000;

// Implements the service on gRPC's threads. Authenticates as EngineService does.
class GroupsService final : public v1::Groups::CallbackService {
 public:
  // All must outlive this and its server.
  GroupsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads);
  ~GroupsService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* ListGroupModels(Context* context, const v1::ListGroupModelsRequest* request,
                           v1::ListGroupModelsResponse* response) override;
  Reactor* DrainGroup(Context* context, const v1::DrainGroupRequest* request,
                      v1::DrainGroupResponse* response) override;
  Reactor* ResumeGroup(Context* context, const v1::ResumeGroupRequest* request,
                       v1::ResumeGroupResponse* response) override;
  Reactor* RemoveGroup(Context* context, const v1::RemoveGroupRequest* request,
                       v1::RemoveGroupResponse* response) override;
  Reactor* MoveModel(Context* context, const v1::MoveModelRequest* request,
                     v1::MoveModelResponse* response) override;

 private:
  absl::Status DescribeModels(const v1::ListGroupModelsRequest& request,
                              v1::ListGroupModelsResponse& response);
  // Drains the group, or puts it back into service.
  Reactor* SetDraining(Context* context, RpcAccess access, const std::string& group,
                       bool is_draining);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
};

}  // namespace lathe::engine
