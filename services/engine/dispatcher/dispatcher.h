// lathe.v1.WorkerPool: worker streams in, commands out.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/periodic_task.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/engine/dispatcher/command_encoder.h"
#include "services/engine/dispatcher/supervisors.h"
#include "services/engine/dispatcher/worker_stream.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

// Each rank of a group has one stream; a new stream of a process takes the place of its old one. A
// worker that is silent for 14 s, or whose work makes no step for too long, is declared dead: the
// core hears that its process is gone, and its parent is asked to kill it. Which work a worker
// gets, and what a group is without one of its ranks, is the core's decision.
class Dispatcher final : public v1::WorkerPool::CallbackService,
                         public WorkerSender,
                         private WorkerStream::Listener {
 public:
  // `runtime` must outlive this; `secret` is what workers must present. `stuck_after`: time without
  // a step after which a busy worker is declared dead; 0: never.
  Dispatcher(Runtime& runtime, std::string secret, absl::Duration stuck_after);

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Supervise(
      grpc::CallbackServerContext* context) override;

  void Send(const SendToWorker& command) override;
  void StreamSample(const std::string& request_id) override;
  std::vector<WorkerStatus> Statuses() override;

  // Ends every stream, so that the server can shut down; workers dial again.
  void EndStreams();

 private:
  using RankKey = std::pair<std::string, int64_t>;  // group and rank

  static constexpr absl::Duration kBeatPeriod = absl::Seconds(2);

  struct OpenStream {
    std::shared_ptr<WorkerStream> stream;
    bool has_said_hello = false;
    int beats = 0;  // of ours, before that
  };

  struct Worker {
    std::shared_ptr<WorkerStream> stream;
    int64_t stream_id = 0;
    WorkerStatus status;
    MeshShape mesh;
    std::string process_id;
    int64_t pid = 0;
    MemoryUse memory;
    v1::VersionAddress version_address;  // empty: it serves no versions
    int64_t epoch = 0;                   // of the last command; 0: it was not told any
    // Beats of ours since it was heard of, and since its work made a step. Counted, not timed:
    // while this process is stopped nobody is late.
    int silent_beats = 0;
    int idle_beats = 0;
    int64_t progress = 0;
    std::chrono::steady_clock::time_point heard_at;     // for metrics
    std::chrono::steady_clock::time_point advanced_at;  // for metrics
  };
  struct Dead {
    RankKey rank;
    Worker worker;
    LossCause cause = LossCause::kSilent;
    std::string how;
  };

  void OnMessage(const std::shared_ptr<WorkerStream>& stream,
                 const v1::WorkerMessage& message) override;
  void OnClosed(const std::shared_ptr<WorkerStream>& stream) override;

  absl::Status CheckHello(const v1::Hello& hello) const;
  absl::Status CheckPeer(const std::string& secret, const std::string& version,
                         const char* who) const;
  // Another process of the same rank that is alive keeps its place, and the ranks of a group are of
  // one kind.
  absl::Status CheckPlace(const v1::Hello& hello);
  absl::Status CheckPeers(const v1::Hello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnLeaving(const std::shared_ptr<WorkerStream>& stream, const RankKey& rank,
                 const v1::Leaving& leaving);
  // ---- in dispatcher_beats.cc
  // Takes the dead from among the workers, and tells the core: of a group, whose work stood still
  // first, as the others may only wait for that one.
  std::vector<Dead> TakeDead();
  std::vector<std::shared_ptr<WorkerStream>> StreamsWithoutHello();
  void Bury(const Dead& dead);
  void Beat();
  void NoteHeartbeat(Worker& worker, const v1::WorkerHeartbeat& heartbeat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ----
  void OnHello(const std::shared_ptr<WorkerStream>& stream, const v1::Hello& hello);
  void OnReport(const RankKey& rank, const v1::WorkerMessage& message);
  void OnDone(const std::string& group, int64_t epoch, const v1::OperationDone& done);
  void OnLostBody(const SendToWorker& command, const std::string& request_id,
                  const absl::Status& status);
  void UpdateStatus(const RankKey& rank, const v1::WorkerMessage& message);
  // The rank whose current stream this is, if any (not yet, or no longer).
  std::optional<RankKey> RankOf(const WorkerStream* stream);
  std::optional<RankKey> FindRank(const WorkerStream* stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Where the group's versions are read; empty: nowhere any more. The core knows no tokens.
  v1::VersionAddress VersionAddressOf(const std::string& group);
  // Null: it is over. `pid`: of its process.
  std::shared_ptr<WorkerStream> StreamFor(const SendToWorker& command, int64_t& pid);

  Runtime& runtime_;
  const std::string secret_;
  const int max_idle_beats_;  // 0: any number
  CommandEncoder encoder_;
  Supervisors supervisors_;

  absl::Mutex mu_;
  std::map<RankKey, Worker> workers_ ABSL_GUARDED_BY(mu_);
  int64_t num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const WorkerStream*, OpenStream> streams_ ABSL_GUARDED_BY(mu_);
  PeriodicTask heartbeat_;
};

}  // namespace lathe::engine
