// Bugs that a run can be given, to see that the invariants find them.
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
  kNoTermCheck,        // store and workers obey every leader
  kNoDuplicateCheck,   // a repeated request is taken for a new one
  kReplayOffByOne,     // the first operation after a snapshot is left out
  kLostAck,            // workers are never told to forget
  kFsyncRemoved,       // a commit counts before it is durable
  kLateSeqRun,         // a seq that is closed runs when it comes
  kWindowNotCompared,  // neither by the worker before a step nor at an adoption
  kVersionDroppedEarly,
  kPayloadFreedEarly,  // when it was sent to a worker
  kGapNotCommitted,    // closed_seq stays in memory
  kMatesFail,          // a worker that somebody killed counts as one that died by itself
  kCrashUntold,        // ... and the other way round
  kRankNotFormed,      // a group works with the ranks that were told of it
  kPeerKept,           // what is left of a lost group is not told to die
  kSessionForgotten,   // ... and taken for new when it comes back
  kMovedModelKept,     // a group that a model has left is not told to drop it
};

const std::vector<SeededBug>& AllSeededBugs();
std::string_view NameOf(SeededBug bug);
// Unset: no bug has this name.
std::optional<SeededBug> FindSeededBug(std::string_view name);

// The bugs that sit between a core and the rest of its engine. Of one engine.
class BugHooks {
 public:
  // `random` must outlive this.
  BugHooks(SeededBug bug, Random& random) : bug_(bug), random_(random) {}

  // Before a Step.
  void Change(EventBody& event);
  // After it.
  void Change(std::vector<Action>& actions);

 private:
  void ChangeWrites(Commit& commit);
  void DropPublishedVersions(std::vector<Action>& actions);
  void RunLateSeqs(std::vector<Action>& actions);
  void KeepMovedModels(std::vector<Action>& actions);

  const SeededBug bug_;
  Random& random_;
  std::set<std::pair<std::string, int64_t>> seen_;  // owner and seq of training requests
  std::vector<SendToWorker> published_;             // PublishVersions that left
  std::map<CallId, Submit> gradients_;              // forward_backwards without an answer
  SendToWorker late_;                               // as the newest batch is sent
  std::map<std::string, std::string> homes_;        // groups of models
};

}  // namespace lathe::engine::simulation
