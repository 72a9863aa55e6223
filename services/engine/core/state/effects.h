// Collects the effects of one Step and orders them behind the commits they depend on.
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

// All effects of a Step wait for its Commit. The effects of a Step without one wait for the last
// Commit under way, if any. Effects therefore leave in the order in which they were decided, and a
// crash cannot undo anything that was visible outside.
class Effects {
 public:
  // Adds a write that must be durable before the effects of this Step become visible.
  void Put(Write write) {
    writes_.push_back(std::move(write));
    urgent_ = true;
  }
  // Adds a write that a crash may lose. It joins the next Commit, at the latest that of the next
  // Tick.
  void PutLater(Write write) { writes_.push_back(std::move(write)); }
  // Returns the row of a request inserted by this Step; nullptr if an earlier Step inserted it.
  RequestRow* InsertedInThisStep(const std::string& request_id);

  // Adds an action that is not held back: a result that a Commit of this Step names.
  void Now(Action action) { now_.push_back(std::move(action)); }
  // Adds an action that is held back until everything decided so far is durable.
  void After(Action action) { after_.push_back(std::move(action)); }
  void Send(const std::string& group, int64_t epoch, WorkerCommand command) {
    After(SendToWorker{group, stream_ids_[group], epoch, std::move(command)});
  }
  // Sends to one rank, on that rank's stream.
  void SendToRank(const std::string& group, int64_t rank, int64_t stream_id, int64_t epoch,
                  WorkerCommand command) {
    After(SendToWorker{group, stream_id, epoch, std::move(command), rank});
  }
  // Directs later commands to the group to this stream.
  void UseStream(const std::string& group, int64_t stream_id) { stream_ids_[group] = stream_id; }

  // Ends a Step. `flush`: also commits the writes that a crash may lose.
  void Finish(bool flush, std::vector<Action>* out);
  // Releases the actions that waited for commits up to `commit_id`.
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
