// lathe.v1.Checkpoints: exports, their links, and copies.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/checkpoints.grpc.pb.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/rpc/submissions.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service. As in EngineService, every rpc authenticates and every look-up is limited
// to the caller's tenant.
class CheckpointsService final : public v1::Checkpoints::CallbackService {
 public:
  // All must outlive this and its server.
  CheckpointsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads, ArchiveSigner& archives,
                     AuditLog& audit);
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
  // Links the source's files into a new directory. The core then adopts the directory or removes
  // it.
  absl::StatusOr<CopyCheckpoint> PlanCopy(const Caller& caller,
                                          const v1::CopyWeightsRequest& request);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
  ArchiveSigner& archives_;
  AuditLog& audit_;
  SubmissionBuilder builder_;
  ReadThreads copies_{{.num_threads = 2, .makes_copies = true}};
};

}  // namespace lathe::engine
