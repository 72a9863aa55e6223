#include "services/engine/dispatcher/worker_stream.h"

#include <utility>

#include "absl/status/statusor.h"
#include "libs/common/rpc/status.h"

namespace lathe::engine {

std::shared_ptr<WorkerStream> WorkerStream::Start(Listener& listener) {
  std::shared_ptr<WorkerStream> stream(new WorkerStream(listener));
  stream->self_ = stream;
  stream->StartRead(&stream->incoming_);
  return stream;
}

void WorkerStream::Send(std::vector<v1::EngineMessage> messages) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  for (v1::EngineMessage& message : messages) {
    if (const v1::EngineMessage* next = outgoing_.Add(std::move(message))) StartWrite(next);
  }
}

bool WorkerStream::has_ended() {
  absl::MutexLock lock(&mu_);
  return ended_;
}

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) return End(absl::OkStatus());
  const absl::StatusOr<bool> is_complete = assembler_.Complete(incoming_);
  if (!is_complete.ok()) return End(is_complete.status());
  if (*is_complete) listener_.OnMessage(shared_from_this(), incoming_);
  incoming_.Clear();
  absl::MutexLock lock(&mu_);
  if (!ended_) StartRead(&incoming_);
}

void WorkerStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the stream broke"));
  absl::MutexLock lock(&mu_);
  const v1::EngineMessage* next = outgoing_.Written();
  if (next != nullptr && !ended_) StartWrite(next, outgoing_.options());
}

void WorkerStream::OnCancel() { End(absl::CancelledError("the worker left")); }

void WorkerStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
  }
  Finish(ToGrpcStatus(status));
}

void WorkerStream::OnDone() {
  listener_.OnClosed(shared_from_this());
  self_.reset();
}

}  // namespace lathe::engine
