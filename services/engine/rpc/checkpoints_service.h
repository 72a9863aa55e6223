// lathe.v1.Checkpoints: exports, their links, copies.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/checkpoints.grpc.pb.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/submissions.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// As EngineService: every rpc authenticates, and the caller's tenant goes into every look-up.
class CheckpointsService final : public v1::Checkpoints::CallbackService {
 public:
  // All must outlive this, and the server that runs it.
  CheckpointsService(Runtime& runtime, KeyRing& keys, ArchiveSigner& archives, AuditLog& audit);
  ~CheckpointsService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* SaveWeightsExternal(Context* context, const v1::SaveWeightsExternalRequest* request,
                               v1::SubmitResponse* response) override;
  Reactor* DescribeExternalWeights(Context* context,
                                   const v1::DescribeExternalWeightsRequest* request,
                                   v1::DescribeExternalWeightsResponse* response) override;
  Reactor* CopyWeights(Context* context, const v1::CopyWeightsRequest* request,
                       v1::CopyWeightsResponse* response) override;

 private:
  // Links the source's files into a new directory; the core names it or drops it.
  absl::StatusOr<CopyCheckpoint> PlanCopy(const Caller& caller,
                                          const v1::CopyWeightsRequest& request);

  Runtime& runtime_;
  KeyRing& keys_;
  ArchiveSigner& archives_;
  AuditLog& audit_;
  SubmissionBuilder builder_;
};

}  // namespace lathe::engine
