// The core's record of a model and of its recovery.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/core/state/indexed_map.h"
#include "services/engine/core/state/model_index.h"
#include "services/engine/core/state/model_log.h"
#include "services/engine/ledger/gradient_window.h"
#include "services/engine/ledger/seq_order.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Recovery of a model on a worker that lacks its state.
struct Recovery {
  // A state from which a recovery can start: a snapshot, a checkpoint or, if neither is set, the
  // model as it was created. `starts` has the best first; its front is the current one.
  struct Start {
    ModelPoint point;
    std::string snapshot_id;         // empty: no snapshot
    std::optional<LoggedLoad> load;  // load of a checkpoint; unset: none
  };
  bool started = false;
  bool resumes = false;  // the model was offloaded, no state was lost
  std::deque<Start> starts;
  std::deque<ReplayOp> program;            // operations still to do
  ModelPoint point;                        // state of the model once the sent commands are done
  std::map<std::string, int64_t> running;  // seq by command id; 0: restores the start
  std::string failures;                    // why earlier starts failed
  int64_t num_failures = 0;                // failures that a retry may avoid
  std::string last_error;                  // of the last try; empty while no other try is due
  int64_t num_unavailable = 0;             // failures in a row for which no start is to blame
  int64_t not_before = 0;
  int64_t began_at = 0;
  int64_t num_replayed = 0;  // number of operations that ran again
};

struct Model {
  ModelRow row;
  SeqOrder order;
  GradientWindow gradient;

  // The data to rebuild the model: its snapshots, oldest first, and the log after the oldest.
  // Before there are two snapshots, the creation is a start too: `created_from`, else `created_as`.
  std::vector<SnapshotRow> snapshots;
  ModelLog log;
  std::optional<LoggedLoad> created_from;
  std::optional<LoraConfig> created_as;  // the row's config changes with a later load
  int64_t snapshot_tried_at = 0;         // time of the last try, or when it became ready
  int64_t snapshot_write_time = 0;       // duration of the last write
  bool snapshot_wanted = false;          // true: due before its interval is over
  std::unique_ptr<Recovery> recovery;    // set while no worker has its state
  int64_t num_recoveries_cut = 0;        // consecutive recoveries that a worker's death ended
  // While this is set, a migration is being prepared, and no request of the model starts. It is the
  // time at which the preparation began, or the last time since then at which a request of the
  // model ran. 0: no preparation.
  int64_t migrating_since = 0;
  int64_t stays_until = 0;  // no migration until then, because writing the model took too long

  std::string unload_request_id;  // an unload that waits for all earlier operations
  // A load_weights into this model failed. Requests that were accepted before its caller knew of
  // the failure fail too.
  struct FailedLoad {
    int64_t seq_id = 0;
    int64_t delivered_at = 0;
    std::string message;
  };
  std::optional<FailedLoad> failed_load;
  int64_t num_live_requests = 0;
  int64_t row_written_at = 0;
  NotifyModelState notified;  // state last sent to its callers
  ModelFacts facts;           // as the index has them
  bool is_touched = false;    // the current Step may have changed it
};

inline const std::string& GroupOf(const Model& model) { return model.row.group; }

// Models by id, found by their group and by their facts. It keeps a list of the models that the
// current Step may have changed, so that no change of a model has to name the indexes that it
// concerns.
class Models {
 public:
  using key_type = std::string;

  Model& Add(const std::string& id, Model model) { return Touch(map_.Add(id, std::move(model))); }
  Model Take(const std::string& id);
  template <typename ChangeModel>
  void Change(const std::string& id, ChangeModel change) {
    map_.Change(id, change);
    Touch(map_.at(id));
  }

  // Reads the facts of the changed models again.
  template <typename FactsOf>
  void Refresh(const FactsOf& facts_of) {
    for (Model* const model : touched_) SetFacts(*model, facts_of(*model));
  }
  // Call when the Step ends, after a Refresh.
  void EndStep();
  ModelIndex& index() { return index_; }

  const std::set<std::string>& IdsWith(const std::string& group) const {
    return map_.IdsWith(group);
  }
  auto begin() {
    for (auto& [id, model] : map_) Touch(model);
    return map_.begin();
  }
  auto end() { return map_.end(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }
  auto find(const std::string& id) {
    const auto it = map_.find(id);
    if (it != map_.end()) Touch(it->second);
    return it;
  }
  auto find(const std::string& id) const { return map_.find(id); }
  Model& at(const std::string& id) { return Touch(map_.at(id)); }
  const Model& at(const std::string& id) const { return map_.at(id); }
  size_t count(const std::string& id) const { return map_.count(id); }
  int64_t num_visited() const { return map_.num_visited(); }

 private:
  Model& Touch(Model& model) {
    if (!model.is_touched) touched_.push_back(&model);
    model.is_touched = true;
    return model;
  }
  void SetFacts(Model& model, ModelFacts facts);

  IndexedMap<Model, GroupOf> map_;
  std::vector<Model*> touched_;
  ModelIndex index_;
};

}  // namespace lathe::engine
