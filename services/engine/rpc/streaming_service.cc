#include "services/engine/rpc/streaming_service.h"

#include "services/engine/rpc/caller.h"
#include "services/engine/rpc/sample_stream_call.h"

namespace lathe::engine {

StreamingService::StreamingService(Runtime& runtime, const KeyRing& keys)
    : runtime_(runtime), keys_(keys), builder_(runtime) {}

StreamingService::~StreamingService() = default;

grpc::ServerWriteReactor<v1::SampleStreamResponse>* StreamingService::SampleStream(
    grpc::CallbackServerContext* context, const v1::SampleRequest* request) {
  return SampleStreamCall::Start(
      runtime_, builder_, AuthenticateCall(keys_, *context, "Streaming.SampleStream"), *request);
}

}  // namespace lathe::engine
