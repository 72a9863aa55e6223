#include "services/engine/rpc/leader_guard.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/strings/string_view.h"

namespace lathe::engine {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

class Guard final : public grpc::experimental::Interceptor {
 public:
  Guard(const std::function<bool()>& may_speak, ServerRpcInfo& call)
      : may_speak_(may_speak), call_(call) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    const bool has_status =
        batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS);
    const bool has_message =
        batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE);
    if ((has_status || has_message) && !may_speak_()) {
      if (has_message && call_.type() != ServerRpcInfo::Type::UNARY) {
        call_.server_context()->TryCancel();
      } else if (has_status) {
        // Clients ignore the message if the status is not OK.
        batch->ModifySendStatus(ToGrpcStatus(NotLeader("unknown")));
      }
    }
    batch->Proceed();
  }

 private:
  const std::function<bool()>& may_speak_;
  ServerRpcInfo& call_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(std::function<bool()> may_speak) : may_speak_(std::move(may_speak)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    return new Guard(may_speak_, *call);
  }

 private:
  const std::function<bool()> may_speak_;
};

}  // namespace

absl::Status NotLeader(std::string_view leader) {
  return WithDetail(
      absl::UnavailableError(absl::StrCat("not leader; the leader: ", AbslView(leader))),
      "not_leader");
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeLeaderGuard(
    std::function<bool()> may_speak) {
  return std::make_unique<Factory>(std::move(may_speak));
}

}  // namespace lathe::engine
