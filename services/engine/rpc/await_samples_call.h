// One AwaitSamples call: waits for any sample of one client to end.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/waiting_call.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Ends when a sample ends, the time is up, the engine stops or the client leaves.
class AwaitSamplesCall final : public WaitingCall {
 public:
  // `runtime` must outlive the call.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const absl::StatusOr<Caller>& caller,
                                         const v1::AwaitSamplesRequest& request,
                                         v1::AwaitSamplesResponse* response);

 private:
  AwaitSamplesCall(Runtime& runtime, CompletionQueueId queue, int64_t cursor,
                   v1::AwaitSamplesResponse* response)
      : runtime_(runtime), queue_(std::move(queue)), cursor_(cursor), response_(response) {}

  void Begin(int64_t wait_ms);
  // Responds with the samples that have ended, possibly none.
  void Conclude() override;
  void StopWaiting(uint64_t wait_id) override { runtime_.completions().Cancel(queue_, wait_id); }

  Runtime& runtime_;
  const CompletionQueueId queue_;
  const int64_t cursor_;
  v1::AwaitSamplesResponse* const response_;
};

}  // namespace lathe::engine
