// lathe.v1.Admin: keys, inspection and drain. Served on the internal socket only.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "protos/lathe/v1/admin.grpc.pb.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

class AdminService final : public v1::Admin::CallbackService {
 public:
  // Returns what is known of every group with an attached worker. Any thread.
  using AttachedGroups = std::function<std::vector<v1::GroupStatus>()>;

  // All must outlive this and its server. Calls that read the store or files run on `reads`.
  AdminService(Runtime& runtime, KeyRing& keys, ReadThreads& reads, AttachedGroups attached_groups);
  ~AdminService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* CreateKey(Context* context, const v1::CreateKeyRequest* request,
                     v1::CreateKeyResponse* response) override;
  Reactor* ListKeys(Context* context, const v1::ListKeysRequest* request,
                    v1::ListKeysResponse* response) override;
  Reactor* RevokeKey(Context* context, const v1::RevokeKeyRequest* request,
                     v1::RevokeKeyResponse* response) override;
  Reactor* RotateKey(Context* context, const v1::RotateKeyRequest* request,
                     v1::RotateKeyResponse* response) override;
  Reactor* ListTenants(Context* context, const v1::ListTenantsRequest* request,
                       v1::ListTenantsResponse* response) override;
  Reactor* ExportAudit(Context* context, const v1::ExportAuditRequest* request,
                       v1::ExportAuditResponse* response) override;
  Reactor* PruneAudit(Context* context, const v1::PruneAuditRequest* request,
                      v1::PruneAuditResponse* response) override;
  Reactor* SetQuota(Context* context, const v1::SetQuotaRequest* request,
                    v1::SetQuotaResponse* response) override;
  Reactor* GetStatus(Context* context, const v1::GetStatusRequest* request,
                     v1::GetStatusResponse* response) override;
  Reactor* MoveModel(Context* context, const v1::MoveModelRequest* request,
                     v1::MoveModelResponse* response) override;
  Reactor* DrainGroup(Context* context, const v1::DrainGroupRequest* request,
                      v1::DrainGroupResponse* response) override;
  Reactor* ResumeGroup(Context* context, const v1::ResumeGroupRequest* request,
                       v1::ResumeGroupResponse* response) override;
  Reactor* RemoveGroup(Context* context, const v1::RemoveGroupRequest* request,
                       v1::RemoveGroupResponse* response) override;
  Reactor* ListTrash(Context* context, const v1::ListTrashRequest* request,
                     v1::ListTrashResponse* response) override;
  Reactor* AdoptCheckpoint(Context* context, const v1::AdoptCheckpointRequest* request,
                           v1::AdoptCheckpointResponse* response) override;
  Reactor* CreateTicket(Context* context, const v1::CreateTicketRequest* request,
                        v1::CreateTicketResponse* response) override;
  Reactor* Drain(Context* context, const v1::DrainRequest* request,
                 v1::DrainResponse* response) override;

 private:
  // Sends a change to the core. The core's answer ends the call.
  template <typename Change>
  Reactor* Decide(Context* context, Change change);
  // Ends the call with the status of `read`, which runs on one of reads_.
  Reactor* Read(Context* context, std::function<absl::Status()> read);
  // Makes the row of a checkpoint that is out of the trash, and answers the call.
  void Adopt(engine::AdoptCheckpoint adoption, v1::AdoptCheckpointResponse* response,
             Reactor* reactor);
  // Returns the time in nanoseconds, or InvalidArgument if it is less than a minute ago.
  absl::StatusOr<int64_t> AuditBefore(const google::protobuf::Timestamp& before) const;
  absl::Status DescribeAudit(const v1::ExportAuditRequest& request,
                             v1::ExportAuditResponse* response);
  absl::Status DeleteAudit(const v1::PruneAuditRequest& request);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
  const AttachedGroups attached_groups_;
};

// One of creating, ready, offloaded.
const char* StateName(const ModelRow& row);

// Returns the state of every group that was formed or has an attached worker, by name, without
// `models`. It completes `attached_groups`.
std::map<std::string, v1::GroupStatus> DescribeGroups(
    Runtime& runtime, const std::vector<v1::GroupStatus>& attached_groups);

// Returns the state of a live model for administrators.
v1::ModelStatus DescribeModel(Runtime& runtime, const KeyRing& keys, const ModelRow& row);

// Returns the engine's status for administrators. It completes `attached_groups`, which their
// workers described, with what the engine knows.
v1::GetStatusResponse DescribeEngine(Runtime& runtime, const KeyRing& keys,
                                     const std::vector<v1::GroupStatus>& attached_groups);

// Returns the models that are unsaved and the requests that are pending now.
v1::DrainResponse DescribeLeftover(Runtime& runtime);

}  // namespace lathe::engine
