// One attempt at a stream of messages to and from an engine.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/protocol.h"
#include "services/api-gateway/engine_client/engine_client.h"

namespace lathe::gateway {

// The owner must keep the stream until `on_done` is called. It must release the stream on a thread
// that is not gRPC's. The last channel of the process ends gRPC's callback threads. Such a thread
// cannot wait for itself: gRPC 1.51 then continues with a deleted queue. Callbacks run on gRPC's
// threads. Callbacks of one kind never run concurrently.
template <typename Service, typename Request, typename Response>
class EngineStream : public grpc::ClientBidiReactor<Request, Response> {
 public:
  using Method = void (Service::StubInterface::async_interface::*)(
      grpc::ClientContext*, grpc::ClientBidiReactor<Request, Response>*);
  struct Callbacks {
    // Called before the first `on_response`.
    std::function<void()> on_connected;
    std::function<void(const Response&)> on_response;
    // The last callback. The stream may be destroyed as soon as it begins.
    std::function<void(const grpc::Status&)> on_done;
  };

  // `engine` proves that the stream is a gateway's.
  static std::shared_ptr<EngineStream> Start(const EngineClient& engine,
                                             const std::shared_ptr<grpc::Channel>& channel,
                                             Method method, Callbacks callbacks) {
    const std::shared_ptr<EngineStream> stream(new EngineStream(channel, std::move(callbacks)));
    stream->context_.AddMetadata(kProtocolHeader, ToText(OwnProtocol()));
    engine.Prove(stream->context_);
    (stream->stub_->async()->*method)(&stream->context_, stream.get());
    // The hold lasts until a read fails, because Flush starts writes outside the reactor's
    // callbacks.
    stream->AddHold();
    stream->StartRead(&stream->response_);
    stream->StartCall();
    return stream;
  }

  // Any thread. Queues a message for the next Flush. Calls neither gRPC nor callbacks, so the
  // caller may hold a lock.
  void Enqueue(Request request) {
    absl::MutexLock lock(&mu_);
    if (!is_over_) outgoing_.push_back(std::move(request));
  }

  // Sends the queued messages. Any thread that holds no lock. Messages to a stream that has ended
  // are dropped.
  void Flush() {
    const Request* next = nullptr;
    {
      absl::MutexLock lock(&mu_);
      if (is_over_ || is_writing_ || outgoing_.empty()) return;
      is_writing_ = true;
      next = &outgoing_.front();
      this->AddHold();
    }
    this->StartWrite(next);
    this->RemoveHold();
  }

  // Sends an empty message as a heartbeat, unless another message is being written.
  void SendHeartbeat() {
    {
      absl::MutexLock lock(&mu_);
      if (is_over_ || is_writing_) return;
      outgoing_.emplace_back();
    }
    Flush();
  }

  void Cancel() { context_.TryCancel(); }

 private:
  EngineStream(const std::shared_ptr<grpc::Channel>& channel, Callbacks callbacks)
      : stub_(Service::NewStub(channel)), callbacks_(std::move(callbacks)) {}

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // the read fails too
    const Request* next = nullptr;
    grpc::WriteOptions options;
    {
      absl::MutexLock lock(&mu_);
      outgoing_.pop_front();
      is_writing_ = !outgoing_.empty();
      if (is_writing_) next = &outgoing_.front();
      // A message with others queued behind it need not be sent on its own.
      if (outgoing_.size() > 1) options.set_buffer_hint();
    }
    if (next != nullptr) this->StartWrite(next, options);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (!std::exchange(was_connected_, true)) callbacks_.on_connected();
      callbacks_.on_response(response_);
      this->StartRead(&response_);
      return;
    }
    {
      absl::MutexLock lock(&mu_);
      is_over_ = true;
    }
    this->RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    const auto on_done = callbacks_.on_done;  // the original may be destroyed during the call
    on_done(status);
  }

  const std::unique_ptr<typename Service::Stub> stub_;
  const Callbacks callbacks_;
  grpc::ClientContext context_;
  Response response_;
  bool was_connected_ = false;
  absl::Mutex mu_;
  std::deque<Request> outgoing_ ABSL_GUARDED_BY(mu_);
  // True while the front of outgoing_ is being written.
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  // True if no operation may be started any more.
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
