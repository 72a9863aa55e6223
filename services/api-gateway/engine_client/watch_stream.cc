#include "services/api-gateway/engine_client/watch_stream.h"

#include <utility>

#include "libs/common/protocol.h"

namespace lathe::gateway {

std::shared_ptr<WatchStream> WatchStream::Start(const EngineClient& engine,
                                                const std::shared_ptr<grpc::Channel>& channel,
                                                Callbacks callbacks) {
  const std::shared_ptr<WatchStream> stream(new WatchStream(channel, std::move(callbacks)));
  stream->context_.AddMetadata(kProtocolHeader, ToText(OwnProtocol()));
  engine.Prove(stream->context_);
  stream->stub_->async()->Watch(&stream->context_, stream.get());
  // The hold lasts until a read fails, because Flush starts writes outside the reactor's callbacks.
  stream->AddHold();
  stream->StartRead(&stream->response_);
  stream->StartCall();
  return stream;
}

WatchStream::WatchStream(const std::shared_ptr<grpc::Channel>& channel, Callbacks callbacks)
    : stub_(v1::Engine::NewStub(channel)), callbacks_(std::move(callbacks)) {}

void WatchStream::Enqueue(v1::WatchRequest request) {
  absl::MutexLock lock(&mu_);
  if (!is_over_) outgoing_.push_back(std::move(request));
}

void WatchStream::Flush() {
  const v1::WatchRequest* next = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (is_over_ || is_writing_ || outgoing_.empty()) return;
    is_writing_ = true;
    next = &outgoing_.front();
    AddHold();
  }
  StartWrite(next);
  RemoveHold();
}

void WatchStream::SendHeartbeat() {
  {
    absl::MutexLock lock(&mu_);
    if (is_over_ || is_writing_) return;
    outgoing_.emplace_back();
  }
  Flush();
}

void WatchStream::OnWriteDone(bool ok) {
  if (!ok) return;  // the read fails too
  const v1::WatchRequest* next = nullptr;
  grpc::WriteOptions options;
  {
    absl::MutexLock lock(&mu_);
    outgoing_.pop_front();
    is_writing_ = !outgoing_.empty();
    if (is_writing_) next = &outgoing_.front();
    // A message with others queued behind it need not be sent on its own.
    if (outgoing_.size() > 1) options.set_buffer_hint();
  }
  if (next != nullptr) StartWrite(next, options);
}

void WatchStream::OnReadDone(bool ok) {
  if (ok) {
    if (!std::exchange(was_connected_, true)) callbacks_.on_connected();
    callbacks_.on_response(response_);
    StartRead(&response_);
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    is_over_ = true;
  }
  RemoveHold();
}

void WatchStream::OnDone(const grpc::Status& status) {
  const auto on_done = callbacks_.on_done;  // the original may be destroyed during the call
  on_done(status);
}

}  // namespace lathe::gateway
