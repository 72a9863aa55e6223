// One AwaitSamples call: waits for any sample of one client to end.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Ends exactly once: when a sample ends, the time is up, the engine stops or the client leaves.
// Keeps itself alive until gRPC is done with it.
class AwaitSamplesCall final : public grpc::ServerUnaryReactor,
                               public std::enable_shared_from_this<AwaitSamplesCall> {
 public:
  static constexpr int64_t kMaxWaitMs = 40'000;

  // `runtime` must outlive the call.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const absl::StatusOr<Caller>& caller,
                                         const v1::AwaitSamplesRequest& request,
                                         v1::AwaitSamplesResponse* response);

  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  AwaitSamplesCall(Runtime& runtime, CompletionQueueId queue, int64_t cursor,
                   v1::AwaitSamplesResponse* response)
      : runtime_(runtime), queue_(std::move(queue)), cursor_(cursor), response_(response) {}

  void Begin(int64_t wait_ms);
  // Responds with the samples that have ended, possibly none.
  void Conclude();
  void End(const absl::Status& status);

  Runtime& runtime_;
  const CompletionQueueId queue_;
  const int64_t cursor_;
  v1::AwaitSamplesResponse* const response_;
  std::shared_ptr<AwaitSamplesCall> self_;

  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t wait_id_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::Alarm alarm_;
};

}  // namespace lathe::engine
