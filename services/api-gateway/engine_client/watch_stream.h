// One attempt at the engine's Watch stream; private to WatchClient.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/engine.grpc.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

// The owner must keep the stream until `on_done` is called. It must release the stream on a thread
// that is not gRPC's. The last channel of the process ends gRPC's callback threads. Such a thread
// cannot wait for itself: gRPC 1.51 then continues with a deleted queue. Callbacks run on gRPC's
// threads. Callbacks of one kind never run concurrently.
class WatchStream : public grpc::ClientBidiReactor<v1::WatchRequest, v1::WatchResponse> {
 public:
  struct Callbacks {
    // Called before the first `on_response`.
    std::function<void()> on_connected;
    std::function<void(const v1::WatchResponse&)> on_response;
    // The last callback. The stream may be destroyed as soon as it begins.
    std::function<void(const grpc::Status&)> on_done;
  };

  // `engine` proves that the stream is a gateway's.
  static std::shared_ptr<WatchStream> Start(const EngineClient& engine,
                                            const std::shared_ptr<grpc::Channel>& channel,
                                            Callbacks callbacks);

  // Any thread. Queues a message for the next Flush. Calls neither gRPC nor callbacks, so the
  // caller may hold a lock.
  void Enqueue(v1::WatchRequest request);
  // Sends the queued messages. Any thread that holds no lock. Messages to a stream that has ended
  // are dropped.
  void Flush();
  // Sends an empty message as a heartbeat, unless another message is being written.
  void SendHeartbeat();
  void Cancel() { context_.TryCancel(); }

 private:
  WatchStream(const std::shared_ptr<grpc::Channel>& channel, Callbacks callbacks);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::unique_ptr<v1::Engine::Stub> stub_;
  const Callbacks callbacks_;
  grpc::ClientContext context_;
  v1::WatchResponse response_;
  bool was_connected_ = false;
  absl::Mutex mu_;
  std::deque<v1::WatchRequest> outgoing_ ABSL_GUARDED_BY(mu_);
  // True while the front of outgoing_ is being written.
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  // True if no operation may be started any more.
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
