// A worker process with counting adapters instead of tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/simulation/link.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"
#include "services/engine/testing/counting_worker.h"

namespace lathe::engine::simulation {

// A message of an engine, with the bodies of its requests.
struct EngineMessage {
  SendToWorker send;
  SharedBodies bodies;
};

// A counting worker in virtual time, with connections, faults and seeded bugs. Runs requests of one
// model in the order that the real worker allows, and different models and samples side by side.
// The simulation owns it until the end of the run, even after its death. In a group of several
// ranks, rank 0 does this work. It needs all other ranks, with which it has one rendezvous.
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
  const CountingAdapter* Find(const std::string& model_id) const {
    return counting_.Find(model_id);
  }
  // Throws unless all results and requests have been released.
  void CheckHoldsNothing() const;
  const std::string& group() const { return counting_.group(); }
  int64_t pid() const { return pid_; }
  // Returns true if the base model is loaded and an engine has attached the worker.
  bool is_usable() const { return is_ready_ && is_attached_ && !is_dead_; }

 private:
  // Work on one model, in order of arrival.
  struct Lane {
    std::deque<Work> waiting;
    int64_t num_running = 0;
    bool barrier_runs = false;
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
  void Report(WorkerReport report);
  // Reports an event that has no result.
  void ReportEvent(EventBody event) { Report({.event = std::move(event), .result = {}}); }
  // Sends what the counting worker reports, and writes what it wants to be written.
  void SendReports();

  ReadyModel Ready() const;
  void Obey(const EngineMessage& message);
  void Enqueue(Work work);
  void StartLoad(const SendLoadVersion& load);
  // Weights that a load finds; nullopt: none that can be read.
  std::optional<Weights> WeightsFor(const SendLoadVersion& load) const;
  std::optional<Weights> Served(const std::string& version_id, int64_t seq_id) const;

  void StartReady();
  void StartLane(Lane& lane);
  void Start(Work work);
  // Plans the ends of all sequences but one of a sample that ends in `duration`.
  void EndSequences(const Work& work, int64_t duration);
  void Finish(Work work);
  // Checks invariants and applies faults, before work runs.
  void Prepare(Work& work);
  void CheckGradient(const CountingAdapter& model, const SendTrainBatch& batch,
                     const RequestBody& body) const;
  void Prepare(CountingAdapter& model, SendOptimStep& step);
  // Throws a Violation of I6 if the worker has more sequences of the tenant than it asked for.
  void CheckSequences(const SendSample& sample) const;
  void RecordSequences(const SendSample& sample, const SharedBodies& bodies);
  // Throws a Violation of I2 if the group has another role than this work needs.
  void CheckRole(const Work& work) const;
  // Returns true for at most one run of a request, and never for a recovery command.
  bool IsSetBack(const std::string& request_id);
  // Writes in the background and then reports. The write is lost if the process dies meanwhile;
  // the report is also dropped after a new Form.
  void WriteLater(CountingWorker::Report report);
  void Write(const CountingWorker::Write& write);

  World& world_;
  const GroupRole role_;
  const int64_t rank_;
  const int64_t pid_;
  CountingWorker counting_;
  const std::function<SimEngine*()> find_engine_;
  const std::function<void(LossCause cause)> on_death_;
  bool is_dead_ = false;
  bool is_ready_ = false;
  int64_t hung_until_ = 0;
  std::shared_ptr<Link> link_;
  std::string session_;  // rendezvous session; empty: none joined
  bool is_attached_ = false;
  std::map<std::string, Lane> lanes_;
  std::vector<Work> waiting_samples_;  // samples that wait for their version
  // Samples that an engine has sent since it attached the worker, and that run, by request id.
  struct Sequences {
    std::string tenant_id;
    int64_t num_left = 0;
  };
  std::map<std::string, Sequences> sequences_;
};

}  // namespace lathe::engine::simulation
