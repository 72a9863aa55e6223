// A worker process with counting adapters instead of tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/simulation/link.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

// A message of an engine, with the bodies of its requests by request id.
struct EngineMessage {
  SendToWorker send;
  std::map<std::string, SharedBody> bodies;
};

// Obeys epochs and terms, and keeps results until they are acknowledged. Runs requests of one model
// in the order that the real worker allows, and different models and samples side by side. The
// simulation owns it until the end of the run, even after its death. In a group of several ranks,
// rank 0 does this work. It needs all other ranks, with which it has one rendezvous.
class SimWorker {
 public:
  // `find_engine`: returns the engine to dial; nullptr: none answers. `on_death`: called at its
  // death.
  SimWorker(World& world, std::string group, GroupRole role, int64_t rank,
            std::function<SimEngine*()> find_engine, std::function<void(LossCause cause)> on_death);

  bool is_dead() const { return is_dead_; }
  bool is_hung() const { return world_.time.now() < hung_until_; }
  const std::shared_ptr<Link>& link() const { return link_; }

  // `says_why`: reports the cause to the engine, if possible.
  void Die(LossCause cause, bool says_why = false);
  // The worker and its peers are all alive, find that they disagree, and leave.
  void Disagree();
  // Stops the worker for `duration` (SIGSTOP).
  void Hang(int64_t duration) { hung_until_ = world_.time.now() + duration; }

  void Receive(const std::shared_ptr<Link>& link, EngineMessage message);
  void OnClosed(const std::shared_ptr<Link>& link);
  // Loses a random sampler version, as if it could not be read any more.
  void LoseVersion();
  // Closes its link, as after a long silence, and dials again.
  void Reconnect();

  // Returns nullptr if the worker does not hold the model.
  const CountingAdapter* Find(const std::string& model_id) const;
  // Throws unless all results and requests have been released.
  void CheckHoldsNothing() const;
  const std::string& group() const { return group_; }
  int64_t pid() const { return pid_; }
  // Returns true if the base model is loaded and an engine has attached the worker.
  bool is_usable() const { return is_ready_ && is_attached_ && !is_dead_; }

 private:
  struct Work {
    std::string request_id;  // empty: no request waits
    std::string model_id;    // empty: a sample
    bool is_train = false;
    WorkerCommand command;
    SharedBody body;
  };
  // Work on one model, in order of arrival.
  struct Lane {
    std::deque<Work> waiting;
    int64_t num_running = 0;
    bool barrier_runs = false;
  };
  struct Version {
    Weights weights;
    bool is_loaded = true;
    int64_t seq_id = 0;  // publication seq; 0: read from a checkpoint
  };

  void Load();
  void BecomeReady();
  // ---- peers, in sim_worker_ranks.cc
  void JoinRendezvous(const RendezvousPoint& rendezvous);
  // Ranks of the group's rendezvous, including this one; empty: no rendezvous.
  std::vector<SimWorker*> Peers() const;
  // Returns true if all ranks have joined and live.
  bool HasPeers() const;
  // Returns true if some ranks have not joined yet, and the others live.
  bool AwaitsPeers() const;
  // Time until which this rank or a peer is hung.
  int64_t HeldUpUntil() const;
  SimWorker& AnyPeer();
  void NotifyPeers();
  void LeaveWithPeers();

  void Dial();
  void Connect(SimEngine* engine);
  WorkerAttached Hello() const;
  ReadyModel Ready() const;
  bool AcceptTerm(int64_t term);
  void Report(WorkerReport report);
  void ReportDone(const WorkerReport& done);

  void HandleMessage(EngineMessage& message);
  void Handle(const FormGroup& command, EngineMessage& message);
  void Handle(const AdoptGroup& command, EngineMessage& message);
  void Handle(const SendTrainBatch& command, EngineMessage& message);
  void Handle(const SendSample& command, EngineMessage& message);
  void Handle(const SendLoadVersion& command, EngineMessage& message);
  void Handle(const SendDropVersion& command, EngineMessage& message);
  void Handle(const SendCancel& command, EngineMessage& message);
  void Handle(const SendAck& command, EngineMessage& message);
  void Handle(const SendDie& command, EngineMessage& message);
  void Handle(const SendClearGradient& command, EngineMessage& message);
  void Handle(const SendSnapshot& command, EngineMessage& message);
  void Handle(const SendSaveVersion& command, EngineMessage& message);
  void Handle(const SendServeVersion& command, EngineMessage& message);
  // Weights that a load finds; nullopt: none that can be read.
  std::optional<Weights> WeightsFor(const SendLoadVersion& command) const;
  std::optional<Weights> Served(const std::string& version_id, int64_t seq_id) const;
  void ReportLoaded(const SendLoadVersion& command);
  // Handles any other command: a barrier with a request.
  template <typename Command>
  void Handle(const Command& command, EngineMessage& message);
  static std::string ModelIdOf(const SendSaveCheckpoint& save) { return save.row.model_id; }
  template <typename Command>
  static std::string ModelIdOf(const Command& command) {
    return command.model_id;
  }

  // Returns false if the request is known. If it is done, its report is sent again.
  bool Begin(const std::string& request_id);
  void StartReady();
  void StartLane(Lane& lane);
  void Start(Work work);
  void Finish(const Work& work);

  void Run(const Work& work, WorkerReport& report);
  void Do(const SendTrainBatch& command, const Work& work, WorkerReport& report);
  void Do(const SendOptimStep& command, const Work& work, WorkerReport& report);
  void Do(const SendCreateAdapter& command, const Work& work, WorkerReport& report);
  void Do(const SendLoadAdapter& command, const Work& work, WorkerReport& report);
  void Do(const SendDropAdapter& command, const Work& work, WorkerReport& report);
  void Do(const SendClearGradient& command, const Work& work, WorkerReport& report);
  void Do(const SendSaveCheckpoint& command, const Work& work, WorkerReport& report);
  void Do(const SendPublishVersion& command, const Work& work, WorkerReport& report);
  void Do(const SendSample& command, const Work& work, WorkerReport& report);
  void Do(const SendRestoreAdapter& command, const Work& work, WorkerReport& report);
  void Do(const SendSnapshot& command, const Work& work, WorkerReport& report);
  // Throws a Violation of I2 if the group has role `other`.
  void CheckRole(GroupRole other) const;
  bool IsSetBack(const std::string& request_id);
  // Writes `files` in the background and then calls `then`. The write is lost if the process dies
  // meanwhile; `then` is also dropped after a new Form.
  void WriteLater(const std::string& dir, CheckpointFiles files, std::function<void()> then);
  template <typename Command>
  void Do(const Command&, const Work&, WorkerReport&) {}

  World& world_;
  const std::string group_;
  const GroupRole role_;
  const int64_t rank_;
  const int64_t pid_;
  const std::string process_id_;
  const std::function<SimEngine*()> find_engine_;
  const std::function<void(LossCause cause)> on_death_;
  bool is_dead_ = false;
  bool is_ready_ = false;
  int64_t hung_until_ = 0;
  std::shared_ptr<Link> link_;
  std::string session_;  // rendezvous session; empty: none joined
  bool is_attached_ = false;
  int64_t epoch_ = 0;
  int64_t term_ = 0;
  int64_t generation_ = 0;  // changes with each Form; reports of earlier work are dropped

  std::map<std::string, CountingAdapter> models_;
  std::map<std::string, Version> versions_;
  std::map<std::string, Lane> lanes_;
  std::set<std::string> running_;             // received and not finished
  std::map<std::string, WorkerReport> done_;  // not acknowledged yet
  std::vector<Work> waiting_samples_;         // samples that wait for their version
};

}  // namespace lathe::engine::simulation
