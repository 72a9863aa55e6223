// An engine process: the real core, and around it what the runtime, the commit loop and the
// dispatcher do.
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

#include "services/engine/core/core.h"
#include "services/engine/simulation/link.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

// A worker's message: the event it becomes and, of a WorkerDone, the encoded result.
struct WorkerReport {
  EventBody event;
  SimResult result;
};

// Leads from its making until it dies. A frozen one (SIGSTOP) takes events and handles them when it
// goes on; what its store was asked before happens all the same. Owned by the simulation until the
// end of the run, also when dead.
class SimEngine {
 public:
  using Reply = std::function<void(const Answer&)>;

  explicit SimEngine(World& world);

  bool is_dead() const { return is_dead_; }
  bool is_frozen() const { return is_frozen_; }
  // Takes calls and acts.
  bool is_up() const { return !is_dead_ && !is_frozen_; }
  int64_t term() const { return term_; }

  void Kill();
  void Freeze() { is_frozen_ = true; }
  void Thaw();

  // A call of rpc/; `body`: of a Submit, may be null. `reply` is called once, or never if this
  // dies.
  void Call(EventBody event, const SharedBody& body, Reply reply);
  // Hands out a result; nullptr: none yet, or no more.
  const SimResult* GetResult(const std::string& request_id);

  void OnHello(const std::shared_ptr<Link>& link, const WorkerAttached& hello);
  void OnReport(const std::shared_ptr<Link>& link, WorkerReport report);
  void OnClosed(const std::shared_ptr<Link>& link) {
    End(link, {.group = link->group, .rank = link->rank});
  }
  // The worker was silent for too long.
  void OnSilent(const std::shared_ptr<Link>& link) {
    End(link, {link->group, /*process_gone=*/true, LossCause::kSilent, "silent", link->rank});
  }
  // The worker said that it ends, and why.
  void OnLeaving(const std::shared_ptr<Link>& link, LossCause cause) {
    End(link, {link->group, /*process_gone=*/true, cause, "it leaves", link->rank});
  }
  // What a supervisor says.
  void OnSupervisor(EventBody event) { Post(std::move(event)); }

  // Throws unless all that this holds has been given back.
  void CheckHoldsNothing() const;

 private:
  struct HeldBody {
    SharedBody body;
    bool is_large = false;
    bool is_committed = false;
  };

  void Post(EventBody event);
  void Step(EventBody event);
  void Tick();
  bool FindsLeaseLost() const;
  void Execute(Commit& action);
  void Execute(Answer& action);
  // A reply that asks the store about what the core has forgotten.
  Reply Resolving(const Submit& submit, Reply reply);
  void Execute(MakeResult& action);
  void Execute(NotifyDone&) {}
  void Execute(NotifyQueueState&) {}
  void Execute(NotifyModelState&) {}
  void Execute(NotifyGroup&) {}
  void Execute(NotifyGroupDrain&) {}
  void Execute(SendToWorker& action);
  void Execute(DeleteFiles& action);
  void Execute(DeleteOtherFiles& action);
  void Execute(ForgetBody& action);
  void Execute(ForgetResult& action) { held_results_.erase(action.result_id); }
  void Execute(NoteRecovery&) {}
  void Execute(CompareReplay& action);
  void Execute(NoteWorkerLost&) {}
  void Execute(NoteVersionTravel&) {}
  void BeginCommit();
  void EndCommit(const std::shared_ptr<CommitGroup>& group);
  void OnDurable(const CommitGroup& group);
  void CheckBounds(const RequestRow& row) const;
  void End(const std::shared_ptr<Link>& link, WorkerDetached detached);
  void CloseLink(const std::shared_ptr<Link>& link);
  // Of one request that a worker shall run; null: it is lost, and the request fails.
  SharedBody BodyFor(const SendToWorker& command, const std::string& request_id,
                     const std::string& body_id);

  World& world_;
  const std::string name_;
  Core core_;
  BugHooks bugs_;
  int64_t term_ = 0;
  bool is_dead_ = false;
  bool is_frozen_ = false;
  bool is_stepping_ = false;
  std::deque<EventBody> inbox_;
  std::vector<std::string> dirs_at_start_;
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Link>> links_;  // by group and rank
  CommitGroup queued_;
  bool is_committing_ = false;
  CallId last_call_ = 0;
  int64_t last_id_ = 0;
  std::map<CallId, Reply> calls_;
  std::map<std::string, HeldBody> held_bodies_;
  std::map<std::string, SimResult> held_results_;
};

}  // namespace lathe::engine::simulation
