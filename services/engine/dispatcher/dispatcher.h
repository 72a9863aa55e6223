// lathe.v1.WorkerPool: receives worker streams and sends commands.
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
#include "libs/common/concurrency/named_thread.h"
#include "libs/common/protocol.h"
#include "protos/lathe/v1/admin.pb.h"
#include "protos/lathe/v1/worker.grpc.pb.h"
#include "services/engine/dispatcher/command_encoder.h"
#include "services/engine/dispatcher/group_sender.h"
#include "services/engine/dispatcher/supervisors.h"
#include "services/engine/dispatcher/worker_stream.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/runtime/worker_sender.h"

namespace lathe::engine {

// The server of worker streams and supervisors. Each rank has one stream; a new stream of a process
// replaces its old one. A worker is declared dead if it is silent for 14 s or its work makes no
// progress for too long. The dispatcher then reports the process as gone and asks its supervisor to
// kill it. The core alone decides what work a worker gets and what the loss of a rank means.
// Commands leave on a thread per group, because bodies may have to be read from the store.
// Thread-safe.
class Dispatcher final : public v1::WorkerPool::CallbackService,
                         public WorkerSender,
                         private WorkerStream::Listener {
 public:
  // `runtime` must outlive this. Workers must present `secret`. A busy worker without progress for
  // `stuck_after` is declared dead; 0: never. Tests use the `protocol` of another release.
  Dispatcher(Runtime& runtime, std::string secret, absl::Duration stuck_after,
             ProtocolRange protocol = OwnProtocol());

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::EngineMessage>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::SupervisorMessage, v1::SupervisorCommand>* Supervise(
      grpc::CallbackServerContext* context) override;

  void Send(SendToWorker command) override;
  void StreamSample(const std::string& request_id) override;
  std::map<std::string, WorkerStatus> Statuses() override;

  // Returns the status of every group with an attached worker, by group. It has the facts from the
  // workers' hellos and heartbeats; other fields are unset.
  std::vector<v1::GroupStatus> DescribeGroups();

  // Ends every stream, so that the server can shut down. Workers reconnect.
  void EndStreams();

 private:
  using RankKey = std::pair<std::string, int64_t>;  // group and rank

  static constexpr absl::Duration kHeartbeatPeriod = absl::Seconds(2);

  struct OpenStream {
    std::shared_ptr<WorkerStream> stream;
    bool has_said_hello = false;
    int heartbeats = 0;  // heartbeats sent before the hello
  };

  struct Worker {
    std::shared_ptr<WorkerStream> stream;
    int64_t stream_id = 0;
    bool ready = false;
    MeshShape mesh;
    std::string release;           // version and protocol, for people
    v1::GroupStatus group_status;  // without state and ranks
    v1::RankStatus rank_status;
    std::string process_id;
    int64_t pid = 0;
    v1::VersionAddress version_address;  // empty: it serves no versions
    int64_t epoch = 0;                   // of the last command; 0: none sent yet
    // Heartbeats sent since the worker's last message, and since its work last advanced. Counts
    // instead of times, so that suspending this process makes no worker late.
    int missed_heartbeats = 0;
    int idle_heartbeats = 0;
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
  // Checks the secret and the protocol of a worker's or supervisor's hello.
  template <typename AnyHello>
  absl::Status CheckPeer(const AnyHello& hello, const char* who) const;
  // Refuses a rank whose place is taken by another live process, and ranks that differ from those
  // of their group.
  absl::Status CheckPlace(const v1::Hello& hello);
  absl::Status CheckPeers(const v1::Hello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the group out of service, or puts it back, and says what it holds.
  void DrainGroupOfSupervisor(const v1::DrainOwnGroup& wanted, Supervisors::DrainAnswer answer);
  void OnLeaving(const std::shared_ptr<WorkerStream>& stream, const RankKey& rank,
                 const v1::Leaving& leaving);
  // ---- in dispatcher_heartbeats.cc
  // Removes dead workers and reports them to the core. The worker that stalled first comes first,
  // because the others of its group may only be waiting for it.
  std::vector<Dead> TakeDead();
  std::vector<std::shared_ptr<WorkerStream>> StreamsWithoutHello();
  void DeclareDead(const Dead& dead);
  void SendHeartbeat();
  void RecordHeartbeat(Worker& worker, const v1::WorkerHeartbeat& heartbeat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ----
  void OnHello(const std::shared_ptr<WorkerStream>& stream, const v1::Hello& hello);
  void OnReport(const RankKey& rank, const v1::WorkerMessage& message);
  void OnDone(const std::string& group, int64_t epoch, const v1::OperationDone& done);
  void UpdateStatus(const RankKey& rank, const v1::WorkerMessage& message);
  // Returns the rank whose current stream this is. Unset before the hello and after a replacement.
  std::optional<RankKey> RankOf(const WorkerStream* stream);
  std::optional<RankKey> FindRank(const WorkerStream* stream) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes a rank that has left. Without ranks, the group needs no sender.
  void EraseLocked(const RankKey& rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ---- in dispatcher_sending.cc
  // Returns the address of the group's versions; empty if its rank 0 is not attached. The core does
  // not know the token.
  v1::VersionAddress VersionAddressOf(const std::string& group);
  // Asks the supervisor of the command's worker to kill it.
  void Kill(const SendToWorker& command, const std::string& reason);
  // The next two run on the group's sender.
  void SendNow(WorkerStream& stream, const SendToWorker& command, const HeldBodies& held);
  void OnLostBody(const SendToWorker& command, const std::string& request_id,
                  const absl::Status& status);
  // Posts an event about a command. Returns false, and drops the event, if the command's stream is
  // gone. The core then sends the command again to the next stream.
  bool PostIfCurrent(const SendToWorker& command, EventBody event);
  // Returns null if the command's stream is gone.
  Worker* FindWorker(const SendToWorker& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveEndedSenders();

  Runtime& runtime_;
  const std::string secret_;
  const ProtocolRange protocol_;
  const int max_idle_heartbeats_;  // 0: no limit
  CommandEncoder encoder_;
  Supervisors supervisors_;

  absl::Mutex mu_;
  std::map<RankKey, Worker> workers_ ABSL_GUARDED_BY(mu_);
  int64_t num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<const WorkerStream*, OpenStream> streams_ ABSL_GUARDED_BY(mu_);
  // Their tasks use the members above. One for each group in workers_.
  std::map<std::string, std::unique_ptr<GroupSender>> senders_ ABSL_GUARDED_BY(mu_);
  // Closed senders whose threads may not have ended yet.
  std::vector<std::unique_ptr<GroupSender>> closed_senders_ ABSL_GUARDED_BY(mu_);
  PeriodicTask heartbeat_;
};

}  // namespace lathe::engine
