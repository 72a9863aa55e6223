// The worker's side of WorkerPool.Attach as a state machine: messages in, messages out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "libs/common/object_store/object_store.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/collectives/rendezvous/rendezvous_socket.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/rpc/command_conversion.h"
#include "services/worker/rpc/piece.h"
#include "services/worker/rpc/request_table.h"

namespace lathe::worker {

// Identity of this process, the same in every Hello.
struct WorkerIdentity {
  std::string group;
  int64_t rank = 0;
  int64_t world = 1;
  std::string process_id;  // random, new with every process
  std::string base_model;  // its served name
  bool is_supervised = false;
  MeshShape mesh = {};
  // For rank 0 of several: its rendezvous address for the other ranks.
  std::string address = "";
  uint16_t port = 0;
  std::string role = "both";            // or "train" or "sample"
  VersionAddress version_address = {};  // rank 0 only; empty: serves no versions
  CheckpointPlace checkpoint_place = {};
};

// Belongs to one thread and outlives streams. Commands received and results not acknowledged are
// kept from one stream to the next. Results are sent again once an engine adopts the worker.
// `executor` must outlive it. From ranks other than 0 the engine needs only their presence and
// memory use: rank 0 tells them what to run.
class AttachProtocol {
 public:
  enum class Verdict { kContinue, kReconnect, kDie };

  // `on_rendezvous` is called once, in a group of several ranks, when all of them have attached.
  AttachProtocol(WorkerIdentity identity, ExecutorPort& executor,
                 std::function<void(const RendezvousPoint&)> on_rendezvous = nullptr);

  // Begins a new stream: drops the messages queued for the last one and returns the first message.
  lathe::v1::WorkerMessage BeginStream(const std::string& secret);

  // kReconnect: this engine must not be obeyed. kDie: it orders this process to end. reason() says
  // why.
  Verdict Receive(lathe::v1::EngineMessage message);

  // Takes a report of the executor. May be called without an open stream.
  void Absorb(const ReportEvent& event);

  // Queues a message for the changed state: Progress, or Ready once.
  void StateChanged();
  void QueueHeartbeat();
  // Queues the last message: this process ends.
  void QueueLeaving(const lathe::v1::Leaving& leaving);

  // Returns the next message to send, at most 1 MiB plus framing; nullopt: none.
  std::optional<lathe::v1::WorkerMessage> PopOutgoing();

  const std::string& reason() const { return reason_; }

 private:
  Verdict HandleMessage(const lathe::v1::EngineMessage& message);
  bool AcceptTerm(int64_t term);
  // Returns false if the process has already met its peers and the engine wants other ones.
  bool JoinRendezvous(const lathe::v1::RendezvousPoint& rendezvous);
  void Form(const lathe::v1::Form& form);
  void Adopt(const lathe::v1::Adopt& adopt);
  void Execute(const lathe::v1::EngineMessage& message);
  bool IsNew(const Incoming& incoming);
  void Refuse(const std::string& request_id, absl::Status status);
  void SubmitOrRefuse(const std::string& request_id, Command command, std::string encoded);
  void SubmitBatch(TrainBatch batch, std::string encoded);
  void AbsorbProgress(const SampleProgress& progress);
  // Queues the number of the running sample's sequences that have ended, unless it is 0.
  void QueueEnded(const std::string& request_id);
  void QueueDone(const lathe::v1::OperationDone& done);
  lathe::v1::WorkerMessage& Queue();
  // As Queue, but between two streams the message waits for the next Adopt. A message queued and
  // not sent is lost; the engine then sends the command again.
  lathe::v1::WorkerMessage& QueueAnswer();

  const WorkerIdentity identity_;
  ExecutorPort& executor_;
  const std::function<void(const RendezvousPoint&)> on_rendezvous_;
  std::string session_;  // session of the ranks this process met; empty: none yet
  RequestTable request_table_;
  PieceJoiner joiner_;
  std::deque<lathe::v1::WorkerMessage> outgoing_;
  std::deque<lathe::v1::WorkerMessage> held_answers_;  // answers to commands without a request_id
  int64_t epoch_ = 0;                                  // epoch of the last Form or Adopt
  int64_t term_ = 0;
  int64_t generation_ = 0;    // generation of the last Reset
  bool is_attached_ = false;  // Form or Adopt has arrived on this stream
  bool ready_sent_ = false;   // Ready was sent on this stream
  std::string reason_;
};

}  // namespace lathe::worker
