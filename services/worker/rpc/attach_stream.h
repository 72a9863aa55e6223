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

// The owner's thread reads and writes. gRPC's threads call `wake` when there is something to read,
// room to write, or the stream has ended. A few messages are read ahead and a few written together,
// which saves waking a thread for each. The limits slow down an engine that sends too fast.
class AttachStream
    : private grpc::ClientBidiReactor<lathe::v1::WorkerMessage, lathe::v1::EngineMessage> {
 public:
  // Sends `hello` on `channel`. `wake` must not block or call this object.
  AttachStream(const std::shared_ptr<grpc::Channel>& channel, lathe::v1::WorkerMessage hello,
               std::function<void()> wake);
  // Cancels the stream and waits for its end.
  ~AttachStream() override;

  // Returns the next message; nullopt: none yet.
  std::optional<lathe::v1::EngineMessage> TakeMessage();

  bool CanWrite() const;
  // Requires CanWrite().
  void Write(lathe::v1::WorkerMessage message);

  // Returns true if the stream is broken or has ended.
  bool IsOver() const;
  // Waits for the end of a stream that IsOver. Returns its status.
  absl::Status Finish();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return done_.has_value(); }

  const std::function<void()> wake_;
  std::unique_ptr<lathe::v1::WorkerPool::Stub> stub_;
  grpc::ClientContext context_;
  lathe::v1::EngineMessage reading_;  // owned by gRPC during a read
  bool released_ = false;             // owner's thread: the hold was removed

  mutable absl::Mutex mu_;
  std::deque<lathe::v1::EngineMessage> read_ ABSL_GUARDED_BY(mu_);
  bool is_reading_ ABSL_GUARDED_BY(mu_) = false;
  // The front message is being written. References to it stay valid.
  std::deque<lathe::v1::WorkerMessage> unwritten_ ABSL_GUARDED_BY(mu_);
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
