// One Attach stream, which belongs to one rank of a worker group.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/engine/dispatcher/pieces.h"
#include "services/engine/rpc/outgoing_messages.h"

namespace lathe::engine {

// Transports messages without interpreting them; the listener does that. Keeps itself alive until
// gRPC is done with it.
class WorkerStream final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>,
                           public std::enable_shared_from_this<WorkerStream> {
 public:
  // Receives a stream's messages, one at a time and in order. OnClosed comes last, once.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnMessage(const std::shared_ptr<WorkerStream>& stream,
                           const v1::WorkerMessage& message) = 0;
    virtual void OnClosed(const std::shared_ptr<WorkerStream>& stream) = 0;
  };

  // `listener` must outlive the stream.
  static std::shared_ptr<WorkerStream> Start(Listener& listener);

  // Writes messages after those sent before. They are dropped once the stream has ended. Any
  // thread.
  void Send(std::vector<v1::EngineMessage> messages);
  // Returns true once Send drops messages. Any thread.
  bool has_ended();
  // Ends the stream; later calls have no effect. Any thread.
  void End(const absl::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit WorkerStream(Listener& listener) : listener_(listener) {}

  Listener& listener_;
  v1::WorkerMessage incoming_;
  PieceAssembler assembler_;
  std::shared_ptr<WorkerStream> self_;

  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  OutgoingMessages<v1::EngineMessage> outgoing_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
