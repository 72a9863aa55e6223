// lathe.v1.Engine: the public, typed API. Converts messages; the core makes the decisions.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.grpc.pb.h"
#include "services/engine/auth/audit_log.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/archive.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/body_threads.h"
#include "services/engine/rpc/read_threads.h"
#include "services/engine/rpc/rpc_access.h"
#include "services/engine/rpc/submissions.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service on gRPC's threads. Every rpc authenticates the metadata `x-api-key` and
// checks the key's scopes. Every look-up is limited to the caller's tenant. Reads of the store run
// on the ReadThreads. Changes go through the core, whose thread ends the call.
class EngineService final : public v1::Engine::CallbackService {
 public:
  // All but `lora` must outlive this and its server.
  EngineService(Runtime& runtime, KeyRing& keys, ReadThreads& reads, ArchiveSigner& archives,
                AuditLog& audit, const LoraDefaults& lora = {});
  ~EngineService() override;

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* Authenticate(Context* context, const v1::AuthenticateRequest* request,
                        v1::AuthenticateResponse* response) override;
  Reactor* GetCapabilities(Context* context, const v1::GetCapabilitiesRequest* request,
                           v1::GetCapabilitiesResponse* response) override;

  Reactor* CreateSession(Context* context, const v1::CreateSessionRequest* request,
                         v1::CreateSessionResponse* response) override;
  Reactor* Heartbeat(Context* context, const v1::HeartbeatRequest* request,
                     v1::HeartbeatResponse* response) override;
  Reactor* FinishSession(Context* context, const v1::FinishSessionRequest* request,
                         v1::FinishSessionResponse* response) override;
  Reactor* ListSessions(Context* context, const v1::ListSessionsRequest* request,
                        v1::ListSessionsResponse* response) override;
  Reactor* GetSession(Context* context, const v1::GetSessionRequest* request,
                      v1::GetSessionResponse* response) override;

  Reactor* CreateModel(Context* context, const v1::CreateModelRequest* request,
                       v1::SubmitResponse* response) override;
  Reactor* UnloadModel(Context* context, const v1::UnloadModelRequest* request,
                       v1::SubmitResponse* response) override;
  Reactor* ForwardBackward(Context* context, const v1::ForwardBackwardRequest* request,
                           v1::SubmitResponse* response) override;
  Reactor* OptimStep(Context* context, const v1::OptimStepRequest* request,
                     v1::SubmitResponse* response) override;
  Reactor* SaveWeights(Context* context, const v1::SaveWeightsRequest* request,
                       v1::SubmitResponse* response) override;
  Reactor* SaveWeightsForSampler(Context* context, const v1::SaveWeightsForSamplerRequest* request,
                                 v1::SubmitResponse* response) override;
  Reactor* LoadWeights(Context* context, const v1::LoadWeightsRequest* request,
                       v1::SubmitResponse* response) override;
  Reactor* GetModel(Context* context, const v1::GetModelRequest* request,
                    v1::GetModelResponse* response) override;

  Reactor* CreateSamplingSession(Context* context, const v1::CreateSamplingSessionRequest* request,
                                 v1::CreateSamplingSessionResponse* response) override;
  Reactor* GetSampler(Context* context, const v1::GetSamplerRequest* request,
                      v1::GetSamplerResponse* response) override;
  Reactor* JoinSamplingSession(Context* context, const v1::JoinSamplingSessionRequest* request,
                               v1::JoinSamplingSessionResponse* response) override;
  Reactor* Sample(Context* context, const v1::SampleRequest* request,
                  v1::SampleSubmitResponse* response) override;
  Reactor* CancelSample(Context* context, const v1::CancelSampleRequest* request,
                        v1::CancelSampleResponse* response) override;

  Reactor* GetResult(Context* context, const v1::GetResultRequest* request,
                     v1::GetResultResponse* response) override;
  Reactor* AwaitSamples(Context* context, const v1::AwaitSamplesRequest* request,
                        v1::AwaitSamplesResponse* response) override;
  grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse>* Watch(Context* context) override;

  Reactor* ListRuns(Context* context, const v1::ListRunsRequest* request,
                    v1::ListRunsResponse* response) override;
  Reactor* GetRun(Context* context, const v1::GetRunRequest* request,
                  v1::GetRunResponse* response) override;
  Reactor* ListCheckpoints(Context* context, const v1::ListCheckpointsRequest* request,
                           v1::ListCheckpointsResponse* response) override;
  Reactor* GetWeightsInfo(Context* context, const v1::GetWeightsInfoRequest* request,
                          v1::GetWeightsInfoResponse* response) override;
  Reactor* DeleteCheckpoint(Context* context, const v1::DeleteCheckpointRequest* request,
                            v1::DeleteCheckpointResponse* response) override;
  Reactor* PublishCheckpoint(Context* context, const v1::PublishCheckpointRequest* request,
                             v1::PublishCheckpointResponse* response) override;
  Reactor* SetCheckpointTtl(Context* context, const v1::SetCheckpointTtlRequest* request,
                            v1::SetCheckpointTtlResponse* response) override;
  Reactor* DescribeArchive(Context* context, const v1::DescribeArchiveRequest* request,
                           v1::DescribeArchiveResponse* response) override;
  Reactor* OpenArchive(Context* context, const v1::OpenArchiveRequest* request,
                       v1::OpenArchiveResponse* response) override;

 private:
  // Opens an archive link if `caller`, whose key asked for it, may still read the checkpoint.
  absl::Status OpenLink(const Caller& caller, const ArchiveSigner::Link& link,
                        v1::OpenArchiveResponse* response);

  // Authenticates, checks the key's scopes, runs `read`, and ends the call with the resulting
  // status. `read` must not read the store.
  Reactor* Answer(Context* context, RpcAccess access,
                  const std::function<absl::Status(const Caller&)>& read);

  // As Answer, for a `read` that may read the store: it runs on one of reads_.
  Reactor* Read(Context* context, RpcAccess access,
                std::function<absl::Status(const Caller&)> read);

  // As Change, for an event that names a session. If the core does not know the session, but the
  // store knows that it has ended, the call succeeds and `fill` gets null.
  template <typename CoreEvent>
  Reactor* ChangeSession(Context* context, RpcAccess access,
                         const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
                         std::function<void(const engine::Answer*)> fill);

  // Authenticates and submits a change. `make` returns the core's event or an error. `fill` copies
  // the core's answer into the response before the call ends.
  template <typename CoreEvent>
  Reactor* Change(Context* context, RpcAccess access,
                  const std::function<absl::StatusOr<CoreEvent>(const Caller&)>& make,
                  std::function<void(const engine::Answer&)> fill) {
    return ChangeCall<CoreEvent>(runtime_, keys_, context, access, make, std::move(fill));
  }

  // Submits a request that becomes a future.
  template <typename Request, typename Response>
  Reactor* SubmitRequest(Context* context, RpcAccess access, const Request* request,
                         Response* response);

  Runtime& runtime_;
  KeyRing& keys_;
  ReadThreads& reads_;
  ArchiveSigner& archives_;
  AuditLog& audit_;
  SubmissionBuilder builder_;
  BodyThreads body_threads_;
};

}  // namespace lathe::engine
