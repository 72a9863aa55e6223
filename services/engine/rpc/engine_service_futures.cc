// EngineService: results of futures.
#include "services/engine/rpc/await_samples_call.h"
#include "services/engine/rpc/engine_service_call.h"
#include "services/engine/rpc/get_result_call.h"
#include "services/engine/rpc/watch_stream.h"

namespace lathe::engine {

EngineService::Reactor* EngineService::GetResult(Context* context,
                                                 const v1::GetResultRequest* request,
                                                 v1::GetResultResponse* response) {
  return GetResultCall::Start(runtime_, AuthenticateCall(keys_, *context, "Engine.GetResult"),
                              *request, response);
}

EngineService::Reactor* EngineService::AwaitSamples(Context* context,
                                                    const v1::AwaitSamplesRequest* request,
                                                    v1::AwaitSamplesResponse* response) {
  return AwaitSamplesCall::Start(runtime_, AuthenticateCall(keys_, *context, "Engine.AwaitSamples"),
                                 *request, response);
}

grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse>* EngineService::Watch(Context*) {
  return WatchStream::Start(runtime_, keys_);
}

}  // namespace lathe::engine
