// One GetResult call: waits for a result until its time is up or the client leaves.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Ends exactly once: with the result, when the time is up, or when the client leaves. Keeps itself
// alive until gRPC is done with it.
class GetResultCall final : public grpc::ServerUnaryReactor,
                            public std::enable_shared_from_this<GetResultCall> {
 public:
  static constexpr int64_t kMaxWaitMs = 40'000;

  // `runtime` must outlive the call.
  static grpc::ServerUnaryReactor* Start(Runtime& runtime, const absl::StatusOr<Caller>& caller,
                                         const v1::GetResultRequest& request,
                                         v1::GetResultResponse* response);

  void OnCancel() override;
  void OnDone() override { self_.reset(); }

 private:
  GetResultCall(Runtime& runtime, std::string request_id, v1::GetResultResponse* response)
      : runtime_(runtime), request_id_(std::move(request_id)), response_(response) {}

  absl::Status Begin(const std::string& tenant_id, int64_t wait_ms);
  // Responds with the result, or as pending if there is none.
  void Conclude();
  void End(const absl::Status& status);
  // Ends the call. Called once, after `ended_` was set.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  Runtime& runtime_;
  const std::string request_id_;
  std::string tenant_id_;
  std::shared_ptr<GetResultCall> self_;

  absl::Mutex mu_;
  v1::GetResultResponse* const response_ ABSL_PT_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t wait_id_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::Alarm alarm_;
};

}  // namespace lathe::engine
