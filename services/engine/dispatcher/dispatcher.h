// lathe.v1.WorkerPool: worker streams in, commands out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/periodic_task.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/engine/dispatcher/command_encoder.h"
#include "services/engine/dispatcher/worker_stream.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

// One group has one rank and one stream; a new stream of a group takes the place of the old one.
// A stream that is silent for 15 s is ended. Which work a worker gets is the core's decision.
class Dispatcher final : public v1::WorkerPool::CallbackService,
                         public WorkerSender,
                         private WorkerStream::Listener {
 public:
  // `runtime` must outlive this; `secret` is what workers must present.
  Dispatcher(Runtime& runtime, std::string secret);

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>* Attach(
      grpc::CallbackServerContext* context) override;

  void Send(const SendToWorker& command) override;
  void StreamSample(const std::string& request_id) override;
  std::vector<WorkerStatus> Statuses() override;

  // Ends every stream, so that the server can shut down; workers dial again.
  void EndStreams();

 private:
  struct Worker {
    std::shared_ptr<WorkerStream> stream;
    int64_t stream_id = 0;
    WorkerStatus status;
    int64_t epoch = 0;  // of the last command; 0: it was not told any
    int silent_beats = 0;
  };

  void OnMessage(const std::shared_ptr<WorkerStream>& stream,
                 const v1::WorkerMessage& message) override;
  void OnClosed(const std::shared_ptr<WorkerStream>& stream) override;

  absl::Status CheckHello(const v1::Hello& hello) const;
  void OnHello(const std::shared_ptr<WorkerStream>& stream, const v1::Hello& hello);
  void OnReport(const std::string& group, const v1::WorkerMessage& message);
  void OnDone(const std::string& group, int64_t epoch, const v1::OperationDone& done);
  void OnLostBody(const SendToWorker& command, const std::string& request_id,
                  const absl::Status& status);
  void UpdateStatus(const std::string& group, const v1::WorkerMessage& message);
  // The group whose current stream this is; empty: none (not yet, or no longer).
  std::string GroupOf(const WorkerStream* stream);
  std::string FindGroup(const WorkerStream* stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null: it is over.
  std::shared_ptr<WorkerStream> StreamFor(const SendToWorker& command);
  void Beat();

  Runtime& runtime_;
  const std::string secret_;
  CommandEncoder encoder_;

  absl::Mutex mu_;
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mu_);  // by group
  int64_t num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const WorkerStream*, std::shared_ptr<WorkerStream>> streams_ ABSL_GUARDED_BY(mu_);
  PeriodicTask heartbeat_;
};

}  // namespace lathe::engine
