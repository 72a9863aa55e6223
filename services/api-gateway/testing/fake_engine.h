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
#include "services/api-gateway/testing/fake_events.h"

namespace lathe::gateway {

// Accepts every call with the key kFakeKey, records it, and finishes a request when a test calls
// Settle. Thread-safe.
class FakeEngine : public v1::Engine::Service {
 public:
  static constexpr char kFakeKey[] = "tml-fake";
  // A browser's session that it accepts like the key.
  static constexpr char kFakeSession[] =
      "lathe-session-0000000000000000000000000000000000000000000";

  // Listens on a unix socket in a new temporary directory. Serves `more` too, which must outlive
  // it.
  explicit FakeEngine(std::vector<grpc::Service*> more = {});
  ~FakeEngine() override;

  const std::string& address() const { return address_; }
  FakeEvents& events() { return events_; }
  // Stops the server and its streams. Accepted requests stay recorded.
  void StopServing();
  void StartServing();

  // Sets the result of a request that was or will be submitted.
  void Settle(const std::string& request_id, v1::OperationResult result);
  void SetQueueState(const std::string& request_id, v1::QueueState state);
  // If true, GetResult does not answer for 10 s, or until SetHangs(false).
  void SetHangs(bool hangs);
  // If false, the Watch stream leaves out results, as it does with large ones.
  void SetInlineResults(bool inlines);

  // Sets the response of AwaitSamples. Without one, AwaitSamples waits for its wait_ms.
  void SetEndedSamples(v1::AwaitSamplesResponse response);

  // These wait up to 10 s for an event and return false if it did not occur.
  bool AwaitSubscription(const std::string& request_id);
  bool AwaitUnsubscription(const std::string& request_id);
  // `method` is the name of an rpc or one of these counters:
  //   WatchHeartbeat              heartbeats on a Watch stream
  //   WatchSubscribe         subscriptions to requests that the stream did not watch yet
  //   WatchDelivered         results that the gateway said were written to their client
  //   AwaitSamplesCancelled  AwaitSamples calls that the gateway cancelled
  bool AwaitCalls(const std::string& method, int count);
  int num_calls(const std::string& method);
  // Protocols that the last Watch stream named; empty: none.
  std::string watch_protocol();

  // Secrets that Authenticate, ForwardBackward and Watch calls brought; empty text: none.
  std::set<std::string> gateway_secrets();

  // Metadata `traceparent` of the last ForwardBackward; empty: none.
  std::string last_traceparent();

  // These return the last request of each kind.
  v1::ForwardBackwardRequest last_forward_backward();
  v1::GetResultRequest last_get_result();
  v1::SampleRequest last_sample();
  v1::AwaitSamplesRequest last_await_samples();
  v1::CreateSessionRequest last_create_session();
  v1::PublishCheckpointRequest last_publish();

  // Sets the folder and files that OpenArchive returns.
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

  const std::vector<grpc::Service*> more_;
  FakeEvents events_;
  std::string dir_;
  std::string address_;
  absl::Mutex mu_;
  std::map<std::string, int> num_calls_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> request_ids_ ABSL_GUARDED_BY(mu_);
  bool inlines_results_ ABSL_GUARDED_BY(mu_) = true;
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, v1::OperationResult> results_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, v1::QueueState> states_ ABSL_GUARDED_BY(mu_);
  // The one Watch stream; null if there is none.
  WatchServer* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string watch_protocol_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> gateway_secrets_ ABSL_GUARDED_BY(mu_);
  std::string traceparent_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> watched_ ABSL_GUARDED_BY(mu_);
  v1::ForwardBackwardRequest forward_backward_ ABSL_GUARDED_BY(mu_);
  v1::GetResultRequest get_result_ ABSL_GUARDED_BY(mu_);
  v1::SampleRequest sample_ ABSL_GUARDED_BY(mu_);
  v1::AwaitSamplesRequest await_samples_ ABSL_GUARDED_BY(mu_);
  v1::AwaitSamplesResponse ended_samples_ ABSL_GUARDED_BY(mu_);
  v1::CreateSessionRequest session_ ABSL_GUARDED_BY(mu_);
  v1::PublishCheckpointRequest publish_ ABSL_GUARDED_BY(mu_);
  v1::OpenArchiveResponse archive_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace lathe::gateway
