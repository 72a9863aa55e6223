// Bugs that can be seeded into a run, to check that the invariants detect them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/events.h"
#include "services/engine/simulation/random.h"

namespace lathe::engine::simulation {

enum class SeededBug {
  kNone,
  kNoTermCheck,        // store and workers accept every term
  kNoDuplicateCheck,   // a duplicate counts as a new request
  kReplayOffByOne,     // the first operation after a snapshot is left out
  kLostAck,            // workers never get an acknowledgement
  kFsyncRemoved,       // a commit counts before it is durable
  kLateSeqRun,         // a closed seq runs when it arrives
  kWindowNotCompared,  // not by the worker before a step, nor at an adoption
  kVersionDroppedEarly,
  kPayloadFreedEarly,   // as soon as it was sent to a worker
  kGapNotCommitted,     // closed_seq is not written to the store
  kMatesFail,           // every reported exit counts as a crash
  kCrashUnreported,     // every reported exit counts as an orderly end
  kRankNotFormed,       // ranks above 0 get no FormGroup
  kPeerKept,            // the rest of a lost group is not evicted
  kSessionForgotten,    // a rank that reconnects counts as new
  kMigratedModelKept,   // the source group of a migration keeps the model
  kDeliveredWhenSent,   // a result counts as delivered when its answer is sent, lost or not
  kSweepForgotten,      // an ended session whose release is cut into pieces is released in part
  kSamplesForgotten,    // samples that wait to be placed are forgotten if a worker is lost then
  kSessionCountDrifts,  // the end of a session does not reach the counters of its tenant
  kEndsCountedTwice,    // each reported end of a sequence makes room for two
};

const std::vector<SeededBug>& AllSeededBugs();
std::string_view NameOf(SeededBug bug);
// Returns nullopt if no bug has this name.
std::optional<SeededBug> FindSeededBug(std::string_view name);

// The bugs between a core and the rest of its engine. Each engine has its own hooks.
class BugHooks {
 public:
  // `random` must outlive this.
  BugHooks(SeededBug bug, Random& random) : bug_(bug), random_(random) {}

  // Runs before a Step.
  void Change(EventBody& event);
  // Runs after a Step.
  void Change(std::vector<Action>& actions);

 private:
  void ChangeWrites(Commit& commit);
  void ForgetSweeps(Commit& commit);
  void DropPublishedVersions(std::vector<Action>& actions);
  void RunLateSeqs(std::vector<Action>& actions);
  void KeepMigratedModels(std::vector<Action>& actions);
  void ForgetSamples(std::vector<Action>& actions);

  const SeededBug bug_;
  Random& random_;
  std::set<std::pair<std::string, int64_t>> seen_;  // owner and seq of training requests
  std::vector<SendToWorker> published_;             // PublishVersions that were sent
  std::map<CallId, Submit> gradients_;              // forward_backwards without an answer
  SendToWorker late_;                               // routing of the newest train batch
  std::map<std::string, std::string> homes_;        // group of each model
  std::set<std::string> forgotten_;                 // sessions that were released in part
  bool is_placing_ = false;                         // samples wait for a Continue
  bool forgets_samples_ = false;
};

}  // namespace lathe::engine::simulation
