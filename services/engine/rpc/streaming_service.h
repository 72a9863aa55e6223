// lathe.v1.Streaming: samples whose tokens are sent as they are sampled.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "protos/lathe/v1/streaming.grpc.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/sample_stream_call.h"
#include "services/engine/rpc/submissions.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Implements the service, which requires the scope `sample`. Runs on the threads of gRPC and the
// core.
class StreamingService final : public v1::Streaming::CallbackService {
 public:
  // Both must outlive this and its server.
  StreamingService(Runtime& runtime, const KeyRing& keys)
      : runtime_(runtime), keys_(keys), builder_(runtime) {}

  grpc::ServerWriteReactor<v1::SampleStreamResponse>* SampleStream(
      grpc::CallbackServerContext* context, const v1::SampleRequest* request) override {
    return SampleStreamCall::Start(runtime_, builder_,
                                   AuthenticateCall(keys_, *context, "Streaming.SampleStream"),
                                   *request, SpanOf(runtime_, *context));
  }

 private:
  Runtime& runtime_;
  const KeyRing& keys_;
  SubmissionBuilder builder_;
};

}  // namespace lathe::engine
