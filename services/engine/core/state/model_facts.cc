#include "services/engine/core/state/model_facts.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace lathe::engine {
namespace {

// A model is in active use for this long after its last request.
constexpr int64_t kActiveFor = 60 * kSecond;

bool IsActive(const State& s, const Model& model) {
  return model.num_live_requests > 0 || s.now - model.row.last_request_at < kActiveFor;
}

ModelFacts FactsOf(const State& s, const Model& model) {
  const ModelRow& row = model.row;
  const bool is_on_worker = IsOnWorker(model);
  const bool is_to_be = IsToBeOnWorker(s, model);
  const bool is_recovering = model.recovery != nullptr && !row.is_offloaded;
  ModelFacts facts{.is_known = true, .group = row.group};
  facts.has_home = HasHome(model);
  facts.is_ready = row.state == ModelState::kReady;
  facts.is_adapter = (row.state == ModelState::kCreating || facts.is_ready) && !row.is_offloaded;
  facts.is_writable = facts.is_ready && model.recovery == nullptr;
  facts.has_gap = model.order.IsMissingBelow(model.order.max_seq() + 1);
  facts.is_moving = !row.move_to.empty() || model.migrating_since > 0;
  const NotifyModelState& told = model.notified;
  facts.is_noticed =
      model.num_live_requests > 0 || told.is_away || told.missing_seq > 0 || !told.reason.empty();
  facts.waits = is_recovering && !model.recovery->started;
  facts.is_started = is_recovering && model.recovery->started;
  if (is_recovering) facts.not_before = model.recovery->not_before;
  if (is_recovering) facts.num_cut = model.num_recoveries_cut;
  if (is_to_be) facts.load = LoadOf(s, model);
  if (is_to_be && model.num_live_requests == 0 && IsActive(s, model)) {
    facts.cools_at = row.last_request_at + kActiveFor;
  }
  if (is_on_worker) facts.write_time = model.snapshot_write_time;
  const bool is_idle = is_on_worker && model.num_live_requests == 0 &&
                       model.unload_request_id.empty() && s.options.model_idle_timeout > 0;
  if (is_idle) facts.idle_at = row.last_request_at + s.options.model_idle_timeout + 1;
  return facts;
}

}  // namespace

bool HasHome(const Model& model) {
  const ModelState state = model.row.state;
  return state == ModelState::kCreating || state == ModelState::kReady ||
         state == ModelState::kLost;
}

bool IsBeingLoaded(const State& s, const Model& model) {
  const std::vector<int64_t> unresolved = model.order.Unresolved();
  return std::any_of(unresolved.begin(), unresolved.end(), [&](int64_t seq) {
    const auto id = s.request_ids.find({model.row.model_id, OpClass::kTrain, seq});
    const Request* const request =
        id == s.request_ids.end() ? nullptr : Find(s.requests, id->second);
    return request != nullptr && request->row.kind == OperationKind::kLoadWeights;
  });
}

bool IsToBeOnWorker(const State& s, const Model& model) {
  switch (model.row.state) {
    case ModelState::kCreating:
      return true;
    case ModelState::kReady:
      return !model.row.is_offloaded;
    case ModelState::kLost:
      return IsBeingLoaded(s, model);
    default:
      return false;
  }
}

bool IsOnWorker(const Model& model) {
  return model.row.state == ModelState::kReady && !model.row.is_offloaded;
}

int64_t LoadOf(const State& s, const Model& model) {
  // An idle model has 1, as it may continue.
  constexpr int64_t kLoadOfActive = 8;
  return IsActive(s, model) ? kLoadOfActive : 1;
}

ModelIndex& IndexOf(State& s) {
  Budget budget(s.options.max_swept);
  while (budget.Take()) {
    const std::optional<std::string> id = s.models.index().cooling.Take(s.now);
    if (!id) break;
    s.models.at(*id);  // its facts are read again
  }
  s.models.Refresh([&](const Model& model) { return FactsOf(s, model); });
  return s.models.index();
}

}  // namespace lathe::engine
