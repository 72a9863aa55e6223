// One Watch stream: a gateway's subscriptions.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/rpc/outgoing_messages.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// A gateway's Watch stream. Each subscription carries the credential of its caller. Keeps itself
// alive until gRPC is done with it.
class WatchStream final : public grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse>,
                          public std::enable_shared_from_this<WatchStream> {
 public:
  // Upper bound of a stream's subscriptions. Further ones are refused with ResourceExhausted.
  static constexpr size_t kMaxSubscriptions = 131072;
  // A larger result would delay the notifications of all other requests on the stream.
  static constexpr size_t kMaxInlineResultBytes = 64 << 10;

  // While more bytes wait to be written, the stream is not read, and results are left out: a peer
  // that does not read costs no more.
  static constexpr size_t kMaxOutgoingBytes = 1 << 20;

  // The first two must outlive the stream. A gateway of a release that does not work with this one
  // is refused with FailedPrecondition ("protocol_mismatch").
  static WatchStream* Start(Runtime& runtime, const KeyRing& keys,
                            const grpc::CallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchStream(Runtime& runtime, const KeyRing& keys) : runtime_(runtime), keys_(keys) {}

  struct Subscription {
    std::string tenant_id;
    uint64_t wait_id = 0;
  };

  void ReadUnlessFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Subscribe(const v1::WatchRequest::Subscribe& subscribe);
  bool IsSubscribed(const std::string& tenant_id, const std::string& request_id);
  // Returns false above the bound.
  bool AddSubscription(const std::string& tenant_id, const std::string& request_id);
  void Unsubscribe(const std::string& request_id);
  void RecordDelivered(const v1::WatchRequest::Delivered& delivered);
  void PushEnd(const std::string& tenant_id, const std::string& request_id, WaitEnd end);
  void PushQueueState(const std::string& request_id, const QueueStatus& queue);
  // Returns the encoded result. Empty if it is too large, or if GetResult must report an error.
  std::string SmallResult(const std::string& tenant_id, const std::string& request_id);
  void PushError(const std::string& request_id, const absl::Status& status);
  void Write(v1::WatchResponse response);
  void End(const absl::Status& status);

  Runtime& runtime_;
  const KeyRing& keys_;
  v1::WatchRequest request_;  // being read
  std::shared_ptr<WatchStream> self_;

  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  OutgoingMessages<v1::WatchResponse> outgoing_ ABSL_GUARDED_BY(mu_);
  size_t outgoing_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_read_due_ ABSL_GUARDED_BY(mu_) = false;  // the next read waits for room
  // Subscriptions by request id.
  std::unordered_map<std::string, Subscription> subscriptions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
