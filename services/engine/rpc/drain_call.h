// One Drain call: waits until no request is pending or the time is up.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/admin.pb.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Ends exactly once. Keeps itself alive until gRPC is done with it.
class DrainCall final : public grpc::ServerUnaryReactor,
                        public std::enable_shared_from_this<DrainCall> {
 public:
  // `runtime` must outlive the call. With a timeout of 0 the call waits as long as the client does.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const v1::DrainRequest& request,
                                         v1::DrainResponse* response);

  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { self_.reset(); }

 private:
  DrainCall(Runtime& runtime, v1::DrainResponse* response)
      : runtime_(runtime), response_(response) {}

  void Conclude(v1::DrainResponse response);
  void End(const grpc::Status& status);

  Runtime& runtime_;
  v1::DrainResponse* const response_;
  std::shared_ptr<DrainCall> self_;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Alarm alarm_;
};

}  // namespace lathe::engine
