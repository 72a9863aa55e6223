#include "services/worker/rpc/attach_stream.h"

#include <utility>

#include "libs/common/rpc/status.h"

namespace lathe::worker {
namespace {

// Limits in messages of at most 1 MiB.
constexpr size_t kMaxReadAhead = 16;
constexpr size_t kMaxUnwritten = 16;

}  // namespace

// The hold delays OnDone while the owner's thread may still start reads and writes.
AttachStream::AttachStream(const std::shared_ptr<grpc::Channel>& channel,
                           lathe::v1::WorkerMessage hello, std::function<void()> wake)
    : wake_(std::move(wake)), stub_(lathe::v1::WorkerPool::NewStub(channel)) {
  stub_->async()->Attach(&context_, this);
  AddHold();
  absl::MutexLock lock(&mu_);
  unwritten_.push_back(std::move(hello));
  StartWrite(&unwritten_.front());
  is_reading_ = true;
  StartRead(&reading_);
  StartCall();
}

AttachStream::~AttachStream() {
  context_.TryCancel();
  Finish().IgnoreError();
}

std::optional<lathe::v1::EngineMessage> AttachStream::TakeMessage() {
  absl::MutexLock lock(&mu_);
  if (read_.empty() || broken_) return std::nullopt;
  lathe::v1::EngineMessage message = std::move(read_.front());
  read_.pop_front();
  if (!std::exchange(is_reading_, true)) StartRead(&reading_);
  return message;
}

bool AttachStream::CanWrite() const {
  absl::MutexLock lock(&mu_);
  return unwritten_.size() < kMaxUnwritten && !broken_;
}

void AttachStream::Write(lathe::v1::WorkerMessage message) {
  absl::MutexLock lock(&mu_);
  unwritten_.push_back(std::move(message));
  if (unwritten_.size() == 1) StartWrite(&unwritten_.front());
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
    is_reading_ = false;
    if (ok) {
      read_.push_back(std::move(reading_));
      reading_.Clear();
      is_reading_ = read_.size() < kMaxReadAhead;
      if (is_reading_) StartRead(&reading_);
      // The owner was woken for the first message and takes all messages before it sleeps.
      if (read_.size() > 1) return;
    } else {
      broken_ = true;
    }
  }
  wake_();
}

void AttachStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    const bool was_full = unwritten_.size() == kMaxUnwritten;
    unwritten_.pop_front();
    if (!ok) broken_ = true;
    if (ok && !unwritten_.empty()) {
      grpc::WriteOptions options;
      // A message that others follow may be sent together with them.
      if (unwritten_.size() > 1) options.set_buffer_hint();
      StartWrite(&unwritten_.front(), options);
    }
    if (ok && !was_full) return;
  }
  wake_();
}

void AttachStream::OnDone(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  done_ = FromGrpcStatus(status);
}

}  // namespace lathe::worker
