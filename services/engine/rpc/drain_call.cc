#include "services/engine/rpc/drain_call.h"

#include <memory>
#include <utility>

#include "services/engine/rpc/admin_service.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

v1::DrainResponse ToProto(const Answer& answer) {
  v1::DrainResponse response;
  for (const std::string& id : answer.unsaved_model_ids) response.add_unsaved_model_ids(id);
  response.set_pending_requests(answer.pending_requests);
  return response;
}

}  // namespace

grpc::ServerUnaryReactor* DrainCall::Start(Runtime& runtime, const v1::DrainRequest& request,
                                           v1::DrainResponse* response) {
  std::shared_ptr<DrainCall> call(new DrainCall(runtime, response));
  call->Keep();
  if (request.timeout_ms() > 0) call->ConcludeAfter(request.timeout_ms());
  runtime.Call(Drain{}, [weak = std::weak_ptr<DrainCall>(call)](const Answer& answer) {
    if (const std::shared_ptr<DrainCall> alive = weak.lock()) alive->OnAnswer(answer);
  });
  return call.get();
}

void DrainCall::Conclude() { Respond(DescribeLeftover(runtime_)); }

void DrainCall::OnAnswer(const Answer& answer) {
  if (answer.error) return End(ToStatus(*answer.error));
  Respond(ToProto(answer));
}

void DrainCall::Respond(v1::DrainResponse response) {
  if (TryEnd([&] { *response_ = std::move(response); })) Close(absl::OkStatus());
}

}  // namespace lathe::engine
