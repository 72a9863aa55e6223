// One WorkerPool.Attach stream, without blocking calls.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/worker.grpc.pb.h"

namespace lathe::worker {

// Its owner's thread reads and writes; gRPC's threads call `wake` when there is something to read,
// room to write, or the end. A few messages are read ahead, and a few written together: that saves
// waking a thread for each. More are not, which slows a hasty engine down.
class AttachStream
    : private grpc::ClientBidiReactor<lathe::v1::WorkerMessage, lathe::v1::EngineMessage> {
 public:
  // Sends `hello` on `channel`. `wake` must not block nor call back.
  AttachStream(const std::shared_ptr<grpc::Channel>& channel, lathe::v1::WorkerMessage hello,
               std::function<void()> wake);
  // Cancels the stream and waits for its end.
  ~AttachStream() override;

  // Next message, nullopt: none yet.
  std::optional<lathe::v1::EngineMessage> TakeMessage();

  bool CanWrite() const;
  // Only when CanWrite().
  void Write(lathe::v1::WorkerMessage message);

  // Whether the stream is broken or over.
  bool IsOver() const;
  // Waits for the end of a stream that IsOver; its status.
  absl::Status Finish();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return done_.has_value(); }

  const std::function<void()> wake_;
  std::unique_ptr<lathe::v1::WorkerPool::Stub> stub_;
  grpc::ClientContext context_;
  lathe::v1::EngineMessage reading_;  // gRPC's while a read is under way
  bool released_ = false;             // owner's thread: the hold was given back

  mutable absl::Mutex mu_;
  std::deque<lathe::v1::EngineMessage> read_ ABSL_GUARDED_BY(mu_);
  bool is_reading_ ABSL_GUARDED_BY(mu_) = false;
  // The front is being written; references stay valid.
  std::deque<lathe::v1::WorkerMessage> unwritten_ ABSL_GUARDED_BY(mu_);
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
