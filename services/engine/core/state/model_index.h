// The indexes of the models. The sweeps find models by them, so that none walks all models.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "services/engine/core/state/sweep.h"

namespace lathe::engine {

// The facts by which the sweeps find a model. They follow from the model and its requests.
struct ModelFacts {
  bool is_known = false;  // false: the model is in no index
  std::string group;
  bool has_home = false;
  bool is_adapter = false;   // counts towards the quota of adapters
  bool is_ready = false;     // requires the weights that it was made with
  bool is_writable = false;  // may have a snapshot written, if it has changed
  bool has_gap = false;      // operations may wait for a missing seq
  bool is_moving = false;    // is migrated, or is to be
  bool is_noticed = false;   // its callers may have to be told of its state
  bool waits = false;        // waits for the start of its recovery
  bool is_started = false;   // its recovery is started
  int64_t not_before = 0;    // earliest start of its recovery
  int64_t num_cut = 0;       // consecutive recoveries that a worker's death ended
  int64_t load = 0;
  int64_t cools_at = 0;  // time at which its load falls; 0: it does not
  int64_t write_time = 0;
  int64_t idle_at = 0;  // time at which it may be offloaded; 0: it is not idle

  bool operator==(const ModelFacts&) const = default;
};

// The models of one base model on one group.
struct ModelsAt {
  std::set<std::string> all;
  int64_t load = 0;
  int64_t write_time = 0;   // sum of the last writes
  int64_t num_started = 0;  // recoveries
  int64_t num_cut = 0;      // models with a recovery that a worker's death ended
  // Recoveries to start: earliest time, number that was cut, model.
  std::set<std::tuple<int64_t, int64_t, std::string>> waiting;
  Turns writable;
  Turns with_home;
};

struct ModelIndex {
  using Place = std::pair<std::string, std::string>;  // group and base model

  // Adds the facts of a model (sign +1), or removes facts that were added (-1).
  void Count(const std::string& id, const std::string& tenant_id, const std::string& base_model,
             const ModelFacts& facts, int64_t sign);

  // Calls `visit` with the models of each base model on the group.
  template <typename Visit>
  void VisitGroup(const std::string& group, const Visit& visit) {
    for (auto it = at.lower_bound({group, ""}); it != at.end() && it->first.first == group; ++it) {
      visit(it->second);
    }
  }

  std::map<Place, ModelsAt> at;                 // absent: no model
  std::map<std::string, int64_t> num_adapters;  // by tenant; absent: 0
  std::map<std::string, int64_t> num_ready;     // by base model; absent: 0
  Turns with_gap;
  Turns moving;
  Turns noticed;
  DueTimes idle;
  DueTimes cooling;
};

}  // namespace lathe::engine
