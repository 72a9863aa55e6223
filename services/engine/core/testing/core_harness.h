// A core with a fake store and fake workers. A test decides when commits become durable and when
// the workers run.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/core.h"
#include "services/engine/core/testing/fake_store.h"
#include "services/engine/core/testing/fake_worker.h"

namespace lathe::engine {

class CoreHarness {
 public:
  explicit CoreHarness(CoreOptions options = {});

  // ---- time, store, processes

  // Commits wait for CommitOne from now on. By default they are durable at once.
  void HoldCommits() { hold_commits_ = true; }
  bool HasCommits() const { return !commits_.empty(); }
  void CommitOne();
  void CommitAll();
  // Advances the time and ticks once.
  void Advance(int64_t nanoseconds);
  void Tick() { Advance(kSecond); }
  // Posts the Continue that the core asked for. Needed only if `hold_continues` is set.
  void Continue();

  void AttachWorker(const std::string& process_id = "p1", bool ready = true,
                    const std::string& base_model = "base");
  void ReattachWorker() { ReattachAs(worker->Hello()); }
  // Attaches the worker with another Hello than its own.
  void ReattachAs(const WorkerAttached& hello);
  // Attaches a worker of another group. It receives commands and runs in RunWorker too.
  FakeWorker& AttachOther(const std::string& group, GroupRole role = GroupRole::kBoth);
  void ReattachOther(const std::string& group) { Post(others.at(group)->Hello()); }
  void DetachWorker(bool process_gone = false);
  // Runs the workers and posts their reports until nothing is left.
  void RunWorker();
  void RunWorkerOnce();

  // Loses what was not committed and starts a new leader on the same store. This detaches the
  // worker, if any.
  void RestartEngine();

  // ---- callers

  void Post(EventBody body);
  const Answer* FindAnswer(CallId call) const;
  // The answer of a call; requires that there is one.
  const Answer& AnswerTo(CallId call) const;

  std::string NewSession(SessionOrdering ordering = SessionOrdering::kSerial,
                         const std::string& tenant = "t");
  // Creates a model and waits until it is ready (needs a worker). Returns its id.
  std::string NewModel(const std::string& session, int64_t model_seq = 0,
                       const std::string& tenant = "t");

  CallId CreateModel(const std::string& session, int64_t model_seq,
                     const std::string& tenant = "t");
  CallId Train(const std::string& model, int64_t seq, OperationKind kind,
               const std::string& content = "", const std::string& tenant = "t",
               int64_t tokens = 10);
  CallId Forward(const std::string& model, int64_t seq) {
    return Train(model, seq, OperationKind::kForward);
  }
  CallId Gradient(const std::string& model, int64_t seq, const std::string& content = "") {
    return Train(model, seq, OperationKind::kForwardBackward, content);
  }
  CallId Step(const std::string& model, int64_t seq) {
    return Train(model, seq, OperationKind::kOptimStep);
  }
  CallId Save(const std::string& model, int64_t seq, SaveArgs args,
              OperationKind kind = OperationKind::kSaveWeights);
  CallId SubmitArgs(const std::string& owner, OpClass op_class, int64_t seq, OperationKind kind,
                    OperationArgs args, const std::string& tenant = "t");
  CallId Sampler(const std::string& session, int64_t seq, const std::string& path,
                 const std::string& tenant = "t");
  CallId Sample(const std::string& sampler, int64_t seq, SampleArgs args = {1, 3, 5, false, 0},
                const std::string& tenant = "t");
  CallId Send(Submit submit);

  // ---- observations

  bool Done(CallId call) const { return done.count(AnswerTo(call).id) > 0; }
  // The error of a request that has ended; nullopt: success.
  std::optional<ErrorInfo> ErrorOf(CallId call) const;
  const MakeResult* ResultOf(CallId call) const;
  RequestState StateOf(CallId call) const { return store.requests().at(AnswerTo(call).id).state; }

  FakeStore store;
  FakeDisk disk;
  std::unique_ptr<FakeWorker> worker;
  bool attached = false;
  std::map<std::string, std::unique_ptr<FakeWorker>> others;  // by group; all are attached
  // Properties of workers that attach from now on.
  bool is_supervised = false;
  int64_t pid = 17;
  MeshShape mesh;
  GroupRole role = GroupRole::kBoth;
  bool serves_versions = false;
  int64_t now = 1'000'000 * kSecond;
  bool hold_continues = false;
  bool is_continue_due = false;  // the core asked for a Continue and has not got it
  std::map<CallId, Answer> answers;
  std::set<std::string> done;              // NotifyDone
  std::map<std::string, MakeResult> made;  // by result id
  std::set<std::string> deleted_dirs;
  std::vector<std::string> needed_dirs;  // DeleteOtherFiles
  std::set<std::string> forgotten_bodies;
  std::optional<NotifyQueueState> queue_state;
  std::map<std::string, NotifyQueueState> queue_states;  // the newest, by group
  std::map<std::string, std::string> notified_groups;    // by request
  std::map<std::string, NotifyModelState> model_states;
  std::map<std::string, NotifyGroupDrain> drains;
  std::map<std::string, NotifyTenant> tenants;
  std::vector<SendToWorker> to_ranks;  // commands to ranks above 0, and every SendDie
  std::vector<RecordRecovery> recoveries;
  std::map<std::string, std::string> result_of;  // by request id
  std::vector<Action> actions;                   // every action so far
  CallId last_call = 0;

 private:
  bool HasWork() const;
  void StepCore(EventBody body);
  void Execute(const Action& action);
  void PumpEvents();
  // Checks that the published use of each tenant is what it holds.
  void CheckUsage() const;

  const CoreOptions options_;
  std::unique_ptr<Core> core_;
  uint64_t seed_ = 7;
  bool hold_commits_ = false;
  std::deque<Commit> commits_;
  std::deque<EventBody> events_;
  bool pumping_ = false;
};

// Sends a session's heartbeat; returns its call.
inline CallId SendHeartbeat(CoreHarness& h, const std::string& session) {
  h.Post(Heartbeat{++h.last_call, "t", session});
  return h.last_call;
}

}  // namespace lathe::engine
