// A worker process with the counting adapter in place of tensors.
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

// What an engine sends, with the bodies of the requests in it by request id.
struct EngineMessage {
  SendToWorker send;
  std::map<std::string, SharedBody> bodies;
};

// Obeys epochs and terms, keeps results until they are acknowledged, runs requests of one model in
// the order that the real one allows, those of different models and samples side by side. Owned by
// the simulation until the end of the run, also when dead. Of a group of several ranks, rank 0 does
// all that; nothing of it goes on without the others, with whom it meets once.
class SimWorker {
 public:
  // `find_engine`: that it dials; nullptr: none answers. `on_death`: it has died.
  SimWorker(World& world, std::string group, GroupRole role, int64_t rank,
            std::function<SimEngine*()> find_engine, std::function<void(LossCause cause)> on_death);

  bool is_dead() const { return is_dead_; }
  bool is_hung() const { return world_.time.now() < hung_until_; }
  const std::shared_ptr<Link>& link() const { return link_; }

  // `says_why`: to the engine, if it can.
  void Die(LossCause cause, bool says_why = false);
  // It and its peers, who all live, find that they do not agree, and leave.
  void Disagree();
  // Does nothing for `duration` (SIGSTOP).
  void Hang(int64_t duration) { hung_until_ = world_.time.now() + duration; }

  void Receive(const std::shared_ptr<Link>& link, EngineMessage message);
  void OnClosed(const std::shared_ptr<Link>& link);
  // One of its sampler versions cannot be read any more.
  void LoseVersion();
  // Ends its link, as one that has been silent for too long, and dials again.
  void Redial();

  // nullptr: not held.
  const CountingAdapter* Find(const std::string& model_id) const;
  // Throws unless all that this holds has been given back.
  void CheckHoldsNothing() const;
  const std::string& group() const { return group_; }
  int64_t pid() const { return pid_; }
  // Has its base model, and an engine that gives it work.
  bool is_usable() const { return is_ready_ && is_attached_ && !is_dead_; }

 private:
  struct Work {
    std::string request_id;  // empty: nobody waits
    std::string model_id;    // empty: a sample
    bool is_train = false;
    WorkerCommand command;
    SharedBody body;
  };
  // Of one model, in order of arrival.
  struct Lane {
    std::deque<Work> waiting;
    int64_t num_running = 0;
    bool barrier_runs = false;
  };
  struct Version {
    Weights weights;
    bool is_loaded = true;
    int64_t seq_id = 0;  // of its publication; 0: read from a checkpoint
  };

  void Load();
  void BecomeReady();
  // ---- peers, in sim_worker_ranks.cc
  void Meet(const Meeting& meeting);
  // This one too; empty: it meets nobody.
  std::vector<SimWorker*> Peers() const;
  // All have met, and live.
  bool HasPeers() const;
  // Not all have met yet, and those that have live.
  bool AwaitsPeers() const;
  // Until then it, or a peer, does nothing.
  int64_t HeldUpUntil() const;
  SimWorker& AnyPeer();
  void TellPeers();
  void LeaveWithPeers();

  void Dial();
  void Connect(SimEngine* engine);
  WorkerAttached Hello() const;
  ReadyModel Ready() const;
  bool AcceptTerm(int64_t term);
  void Report(WorkerReport report);
  void ReportDone(const WorkerReport& done);

  void Obey(EngineMessage& message);
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
  // What a load finds; nullopt: nothing that can be read.
  std::optional<Weights> WeightsFor(const SendLoadVersion& command) const;
  std::optional<Weights> Served(const std::string& version_id, int64_t seq_id) const;
  void TellLoaded(const SendLoadVersion& command);
  // What is left is a barrier with a request.
  template <typename Command>
  void Handle(const Command& command, EngineMessage& message);
  static std::string ModelIdOf(const SendSaveCheckpoint& save) { return save.row.model_id; }
  template <typename Command>
  static std::string ModelIdOf(const Command& command) {
    return command.model_id;
  }

  // False: known already, and answered again if it is done.
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
  // I2: its group's role is another.
  void CheckRole(GroupRole other) const;
  bool IsSetBack(const std::string& request_id);
  // Writes `files` in the background, as a process that may die meanwhile; then `then`, unless it
  // did or was formed anew.
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
  std::string session_;  // of its peers; empty: it has not met them
  bool is_attached_ = false;
  int64_t epoch_ = 0;
  int64_t term_ = 0;
  int64_t generation_ = 0;  // what began before the last Form is not heard of

  std::map<std::string, CountingAdapter> models_;
  std::map<std::string, Version> versions_;
  std::map<std::string, Lane> lanes_;
  std::set<std::string> running_;             // received, not done
  std::map<std::string, WorkerReport> done_;  // not acknowledged
  std::vector<Work> waiting_samples_;         // for their version
};

}  // namespace lathe::engine::simulation
