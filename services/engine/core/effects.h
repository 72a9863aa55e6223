// Collects what one Step wants done and orders it behind the commits it depends on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/actions.h"

namespace lathe::engine {

// All effects of a Step wait for its Commit; those of a Step without one wait for the last Commit
// that is still under way, if any. So effects leave in the order in which they were decided, and
// nothing is seen outside that a crash could undo.
class Effects {
 public:
  // Must be durable before the effects of this Step show.
  void Put(Write write) {
    writes_.push_back(std::move(write));
    urgent_ = true;
  }
  // May be lost in a crash: joins the next Commit, at the latest that of the next Tick.
  void PutLater(Write write) { writes_.push_back(std::move(write)); }
  // The row of a request inserted by this Step; nullptr if an earlier one did.
  RequestRow* InsertedInThisStep(const std::string& request_id);

  // Not held back: results that a Commit of this Step names.
  void Now(Action action) { now_.push_back(std::move(action)); }
  // Held back until everything decided so far is durable.
  void After(Action action) { after_.push_back(std::move(action)); }
  void Send(const std::string& group, int64_t epoch, WorkerCommand command) {
    After(SendToWorker{group, stream_ids_[group], epoch, std::move(command)});
  }
  // To one rank, on a stream of its own.
  void SendToRank(const std::string& group, int64_t rank, int64_t stream_id, int64_t epoch,
                  WorkerCommand command) {
    After(SendToWorker{group, stream_id, epoch, std::move(command), rank});
  }
  // What is sent to the group from now on goes to this stream.
  void UseStream(const std::string& group, int64_t stream_id) { stream_ids_[group] = stream_id; }

  // Ends a Step. `flush`: commits even what may be lost.
  void Finish(bool flush, std::vector<Action>* out);
  // Releases what waited for commits up to `commit_id`.
  void Committed(uint64_t commit_id, std::vector<Action>* out);

 private:
  struct Waiting {
    uint64_t commit_id = 0;
    std::vector<Action> actions;
  };

  std::vector<Write> writes_;
  bool urgent_ = false;
  std::vector<Action> now_;
  std::vector<Action> after_;
  std::deque<Waiting> waiting_;  // commits under way, oldest first
  uint64_t last_commit_id_ = 0;
  std::map<std::string, int64_t> stream_ids_;  // by group
};

}  // namespace lathe::engine
