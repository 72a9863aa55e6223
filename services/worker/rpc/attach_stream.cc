#include "services/worker/rpc/attach_stream.h"

#include <utility>

#include "libs/common/rpc/channel.h"
#include "libs/common/rpc/status.h"

namespace lathe::worker {

// The hold keeps OnDone away while reads and writes are started from the owner's thread.
AttachStream::AttachStream(const std::string& address, lathe::v1::WorkerMessage hello,
                           std::function<void()> wake)
    : wake_(std::move(wake)),
      stub_(lathe::v1::WorkerPool::NewStub(MakeChannel(address))),
      writing_(std::move(hello)) {
  stub_->async()->Attach(&context_, this);
  AddHold();
  StartWrite(&writing_);
  StartRead(&reading_);
  StartCall();
}

AttachStream::~AttachStream() {
  context_.TryCancel();
  Finish().IgnoreError();
}

std::optional<lathe::v1::EngineMessage> AttachStream::TakeMessage() {
  {
    absl::MutexLock lock(&mu_);
    if (!has_message_ || broken_) return std::nullopt;
    has_message_ = false;
  }
  lathe::v1::EngineMessage message = std::move(reading_);
  reading_.Clear();
  StartRead(&reading_);
  return message;
}

bool AttachStream::CanWrite() const {
  absl::MutexLock lock(&mu_);
  return can_write_ && !broken_;
}

void AttachStream::Write(lathe::v1::WorkerMessage message) {
  {
    absl::MutexLock lock(&mu_);
    can_write_ = false;
  }
  writing_ = std::move(message);
  StartWrite(&writing_);
}

bool AttachStream::IsOver() const {
  absl::MutexLock lock(&mu_);
  return broken_ || done_.has_value();
}

absl::Status AttachStream::Finish() {
  if (!std::exchange(released_, true)) RemoveHold();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &AttachStream::IsDone));
  return *done_;
}

void AttachStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    has_message_ = ok;
    if (!ok) broken_ = true;
  }
  wake_();
}

void AttachStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    can_write_ = ok;
    if (!ok) broken_ = true;
  }
  wake_();
}

void AttachStream::OnDone(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  done_ = FromGrpcStatus(status);
}

}  // namespace lathe::worker
