// An engine in memory behind a real gRPC server, for the gateway's tests.
#pragma once

#include <grpcpp/server.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/engine.grpc.pb.h"

namespace lathe::gateway {

// Accepts everything from key kFakeKey, remembers what arrived, and settles a request when a test
// says so. Any thread.
class FakeEngine : public v1::Engine::Service {
 public:
  static constexpr char kFakeKey[] = "tml-fake";

  // Listens on a unix socket in a directory of its own.
  FakeEngine();
  ~FakeEngine() override;

  const std::string& address() const { return address_; }
  // The server goes away, streams and all; what was accepted stays.
  void StopServing();
  void StartServing();

  // The result of a request that was or will be submitted.
  void Settle(const std::string& request_id, v1::OperationResult result);
  void SetQueueState(const std::string& request_id, v1::QueueState state);
  // GetResult says nothing for 10 s, or until it is let go on.
  void SetHangs(bool hangs);
  // False: results are as if too large for the Watch stream.
  void SetInlineResults(bool inlines);

  // What AwaitSamples answers with once it is set; until then it waits as it is asked to.
  void SetEndedSamples(v1::AwaitSamplesResponse response);

  // Waits up to 10 s for a condition on what has arrived; false when it never came.
  bool AwaitSubscription(const std::string& request_id);
  bool AwaitUnsubscription(const std::string& request_id);
  // Of a Watch stream's messages that say nothing: "WatchBeat"; of those that subscribe what was
  // not: "WatchSubscribe"; of waits for samples that the
  // gateway ended: "AwaitSamplesCancelled".
  bool AwaitCalls(const std::string& method, int count);
  int num_calls(const std::string& method);

  // What arrived last, by kind.
  v1::ForwardBackwardRequest last_forward_backward();
  v1::SampleRequest last_sample();
  v1::AwaitSamplesRequest last_await_samples();
  v1::CreateSessionRequest last_create_session();
  v1::PublishCheckpointRequest last_publish();

  // Folder and files that OpenArchive gives out.
  void SetArchive(v1::OpenArchiveResponse archive);

  grpc::Status Authenticate(grpc::ServerContext*, const v1::AuthenticateRequest*,
                            v1::AuthenticateResponse*) override;
  grpc::Status GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                               v1::GetCapabilitiesResponse*) override;
  grpc::Status CreateSession(grpc::ServerContext*, const v1::CreateSessionRequest*,
                             v1::CreateSessionResponse*) override;
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest*,
                         v1::HeartbeatResponse*) override;
  grpc::Status ForwardBackward(grpc::ServerContext*, const v1::ForwardBackwardRequest*,
                               v1::SubmitResponse*) override;
  grpc::Status OptimStep(grpc::ServerContext*, const v1::OptimStepRequest*,
                         v1::SubmitResponse*) override;
  grpc::Status Sample(grpc::ServerContext*, const v1::SampleRequest*,
                      v1::SampleSubmitResponse*) override;
  grpc::Status AwaitSamples(grpc::ServerContext*, const v1::AwaitSamplesRequest*,
                            v1::AwaitSamplesResponse*) override;
  grpc::Status GetResult(grpc::ServerContext*, const v1::GetResultRequest*,
                         v1::GetResultResponse*) override;
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest*,
                               v1::ListCheckpointsResponse*) override;
  grpc::Status PublishCheckpoint(grpc::ServerContext*, const v1::PublishCheckpointRequest*,
                                 v1::PublishCheckpointResponse*) override;
  grpc::Status DescribeArchive(grpc::ServerContext*, const v1::DescribeArchiveRequest*,
                               v1::DescribeArchiveResponse*) override;
  grpc::Status OpenArchive(grpc::ServerContext*, const v1::OpenArchiveRequest*,
                           v1::OpenArchiveResponse*) override;
  using WatchServer = grpc::ServerReaderWriter<v1::WatchResponse, v1::WatchRequest>;
  grpc::Status Watch(grpc::ServerContext*, WatchServer* stream) override;

 private:
  std::string Count(const std::string& method) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Push(const std::string& request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AwaitLocked(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::string dir_;
  std::string address_;
  absl::Mutex mu_;
  std::map<std::string, int> num_calls_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> request_ids_ ABSL_GUARDED_BY(mu_);
  bool inlines_results_ ABSL_GUARDED_BY(mu_) = true;
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, v1::OperationResult> results_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, v1::QueueState> states_ ABSL_GUARDED_BY(mu_);
  // Of the one stream; null when there is none.
  WatchServer* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::set<std::string> watched_ ABSL_GUARDED_BY(mu_);
  v1::ForwardBackwardRequest forward_backward_ ABSL_GUARDED_BY(mu_);
  v1::SampleRequest sample_ ABSL_GUARDED_BY(mu_);
  v1::AwaitSamplesRequest await_samples_ ABSL_GUARDED_BY(mu_);
  v1::AwaitSamplesResponse ended_samples_ ABSL_GUARDED_BY(mu_);
  v1::CreateSessionRequest session_ ABSL_GUARDED_BY(mu_);
  v1::PublishCheckpointRequest publish_ ABSL_GUARDED_BY(mu_);
  v1::OpenArchiveResponse archive_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lathe::gateway
