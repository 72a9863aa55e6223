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

namespace lathe::gateway {

// Whoever starts it keeps it until `on_done` is called, and gives it up on a thread of its own:
// with the last channel of a process end gRPC's callback threads, and one of them cannot wait for
// itself (gRPC 1.51 then goes on with a deleted queue). Callbacks run on gRPC's threads, one at a
// time for each kind.
class WatchStream : public grpc::ClientBidiReactor<v1::WatchRequest, v1::WatchResponse> {
 public:
  struct Callbacks {
    // The engine has answered for the first time.
    std::function<void()> on_connected;
    std::function<void(const v1::WatchResponse&)> on_response;
    // The last call; the stream may be destroyed from its beginning.
    std::function<void(const grpc::Status&)> on_done;
  };

  static std::shared_ptr<WatchStream> Start(const std::shared_ptr<grpc::Channel>& channel,
                                            Callbacks callbacks);

  // Any thread. Puts a message in line; the next Flush sends it. Calls nothing.
  void Enqueue(v1::WatchRequest request);
  // Any thread, holding no lock. Messages to a stream that has ended are dropped.
  void Flush();
  // As Flush of a message that says nothing, unless others are under way.
  void Beat();
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
  // The front one of outgoing_ is being written.
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  // No operation may be started any more.
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
