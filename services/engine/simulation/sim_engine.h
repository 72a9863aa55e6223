// An engine process: the real core with simulations of the runtime, the commit loop and the
// dispatcher.
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

// A worker's message as an event; for a WorkerDone also the encoded result.
struct WorkerReport {
  EventBody event;
  SimResult result;
};

// Leads from its construction until it dies. A frozen one (SIGSTOP) queues events until it is
// thawed, while earlier requests to its store proceed. The simulation owns it until the end of the
// run, even after its death.
class SimEngine {
 public:
  using Reply = std::function<void(const Answer&)>;

  explicit SimEngine(World& world);

  bool is_dead() const { return is_dead_; }
  bool is_frozen() const { return is_frozen_; }
  // Returns true if the engine takes calls and acts.
  bool is_up() const { return !is_dead_ && !is_frozen_; }
  int64_t term() const { return term_; }

  void Kill();
  void Freeze() { is_frozen_ = true; }
  void Thaw();

  // Makes a call of rpc/. `body`: body of a Submit, may be null. `reply` is called once, or never
  // if the engine dies.
  void Call(EventBody event, const SharedBody& body, Reply reply);
  // Returns a result; nullptr: none yet, or removed.
  const SimResult* GetResult(const std::string& request_id);
  // Acknowledges that the result has reached its client.
  void PostDelivered(const std::string& request_id);

  void OnHello(const std::shared_ptr<Link>& link, const WorkerAttached& hello);
  void OnReport(const std::shared_ptr<Link>& link, WorkerReport report);
  void OnClosed(const std::shared_ptr<Link>& link) {
    End(link, {.group = link->group, .rank = link->rank});
  }
  // The worker was silent for too long.
  void OnSilent(const std::shared_ptr<Link>& link) {
    End(link, {link->group, /*process_gone=*/true, LossCause::kSilent, "silent", link->rank});
  }
  // The worker reported that it ends, and why.
  void OnLeaving(const std::shared_ptr<Link>& link, LossCause cause) {
    End(link, {link->group, /*process_gone=*/true, cause, "it leaves", link->rank});
  }
  // Handles an event of a supervisor.
  void OnSupervisor(EventBody event) { Post(std::move(event)); }

  // Throws unless the published counters are those of the store. Call it at rest.
  void CheckUsageIsStored() const;
  // Throws unless all held bodies, results and calls have been released.
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
  // Wraps `reply`: it asks the store about requests that the core has forgotten.
  Reply Resolving(const Submit& submit, Reply reply);
  void Execute(MakeResult& action);
  void Execute(NotifyDone&) {}
  void Execute(NotifyQueueState&) {}
  void Execute(NotifyModelState&) {}
  void Execute(NotifyGroup&) {}
  void Execute(NotifyGroupDrain&) {}
  void Execute(ContinueLater&);
  void Execute(SendToWorker& action);
  void Execute(DeleteFiles& action);
  void Execute(DeleteOtherFiles& action);
  void Execute(ForgetBody& action);
  void Execute(ForgetResult& action) { held_results_.erase(action.result_id); }
  void Execute(RecordRecovery&) {}
  void Execute(CompareReplay& action);
  void Execute(RecordWorkerLost&) {}
  void Execute(RecordWeightTransfer&) {}
  void Execute(NotifyTenant& action) { tenants_[action.tenant_id] = std::move(action); }
  void BeginCommit();
  void EndCommit(const std::shared_ptr<CommitGroup>& group);
  void OnDurable(const CommitGroup& group);
  void CheckBounds(const RequestRow& row) const;
  // Checks that no tenant has more sessions or samplers than its limits allow.
  void CheckTenant(const std::string& tenant_id) const;
  // Returns what the core published last, without tenants that hold nothing.
  std::map<std::string, TenantUsage> PublishedUsage() const;
  void CheckPublishedUsage() const;
  void End(const std::shared_ptr<Link>& link, WorkerDetached detached);
  void CloseLink(const std::shared_ptr<Link>& link);
  // Body of one request for a worker. Null: the body is lost, and the request fails.
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
  std::map<std::string, NotifyTenant> tenants_;  // the newest of each tenant
  std::map<std::string, HeldBody> held_bodies_;
  std::map<std::string, SimResult> held_results_;
};

}  // namespace lathe::engine::simulation
