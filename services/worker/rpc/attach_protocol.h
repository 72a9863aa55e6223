// The worker's side of WorkerPool.Attach as a state machine: messages in, messages out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "protos/lathe/v1/worker.pb.h"
#include "services/worker/collectives/meeting.h"
#include "services/worker/collectives/mesh.h"
#include "services/worker/executor/executor_port.h"
#include "services/worker/rpc/command_conversion.h"
#include "services/worker/rpc/piece.h"
#include "services/worker/rpc/request_book.h"

namespace lathe::worker {

// Who this process is; the same in every Hello.
struct WorkerIdentity {
  std::string group;
  int64_t rank = 0;
  int64_t world = 1;
  std::string process_id;  // random, new with every process
  std::string base_model;  // its served name
  bool is_supervised = false;
  MeshShape mesh = {};
  // Rank 0 of several: where its peers may meet it.
  std::string address = "";
  uint16_t port = 0;
  std::string role = "both";            // or "train" or "sample"
  VersionAddress version_address = {};  // rank 0; empty: it serves no versions
};

// Belongs to one thread. Outlives streams: what was received, done and not acknowledged is kept
// from one stream to the next, and sent again once an engine adopts us. `executor` must outlive it.
// Of ranks other than 0 an engine wants to know only that they are there, and their memory; what
// they do, rank 0 tells them.
class AttachProtocol {
 public:
  enum class Verdict { kGoOn, kRedial, kDie };

  // `on_meeting` is called once, in a group of several ranks: all of them have come.
  AttachProtocol(WorkerIdentity identity, ExecutorPort& executor,
                 std::function<void(const Meeting&)> on_meeting = nullptr);

  // A stream has opened: forgets what was to be sent on the last one and returns the first message.
  lathe::v1::WorkerMessage BeginStream(const std::string& secret);

  // kRedial: the engine is not to be obeyed. kDie: it told us to end; reason() says why.
  Verdict Receive(lathe::v1::EngineMessage message);

  // A report of the executor; call it whether a stream is open or not.
  void Absorb(const ReportEvent& event);

  // Queues what changed: Progress, or Ready once.
  void StateChanged();
  void QueueHeartbeat();
  // The last message: this process ends.
  void QueueLeaving(const lathe::v1::Leaving& leaving);

  // Next message to send, none above 1 MiB; nullopt: nothing to send.
  std::optional<lathe::v1::WorkerMessage> PopOutgoing();

  const std::string& reason() const { return reason_; }

 private:
  Verdict Obey(const lathe::v1::EngineMessage& message);
  bool AcceptTerm(int64_t term);
  // False: the process has met its peers, and the engine wants it to meet others.
  bool Meet(const lathe::v1::Meeting& meeting);
  void Form(const lathe::v1::Form& form);
  void Adopt(const lathe::v1::Adopt& adopt);
  void Execute(const lathe::v1::EngineMessage& message);
  bool IsNew(const Incoming& incoming);
  void Refuse(const std::string& request_id, absl::Status status);
  void SubmitOrRefuse(const std::string& request_id, Command command, std::string encoded);
  void SubmitBatch(TrainBatch batch, std::string encoded);
  void QueueDone(const lathe::v1::OperationDone& done);
  lathe::v1::WorkerMessage& Queue();
  // As Queue, but between two streams the message waits for the next Adopt. One that was queued
  // and not sent is lost: whoever asked asks again.
  lathe::v1::WorkerMessage& QueueAnswer();

  const WorkerIdentity identity_;
  ExecutorPort& executor_;
  const std::function<void(const Meeting&)> on_meeting_;
  std::string session_;  // of the peers it was told to meet; empty: none
  RequestBook book_;
  PieceJoiner joiner_;
  std::deque<lathe::v1::WorkerMessage> outgoing_;
  std::deque<lathe::v1::WorkerMessage> held_answers_;  // to commands without a request_id
  int64_t epoch_ = 0;                                  // of the last Form or Adopt obeyed
  int64_t term_ = 0;
  int64_t generation_ = 0;    // of the last Reset
  bool is_attached_ = false;  // Form or Adopt came on this stream
  bool ready_sent_ = false;   // on this stream
  std::string reason_;
};

}  // namespace lathe::worker
