#include "services/engine/core/models/model_states.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/models/recovery_need.h"

namespace lathe::engine {
namespace {

// Returns why the model is in migration, or must not leave a group that does not work; for people.
// Empty: neither.
std::string MigrationWaitReason(State& s, const Model& model) {
  if (model.migrating_since > 0) return "its model is being moved to another group";
  const Group* const home = Find(s.groups, model.row.group);
  const bool stays = home != nullptr && IsToBeOnWorker(s, model) && IsGroupLost(s, model) &&
                     MayKillWorkers(s, model);
  return stays ? "its model is not moved to another group, as it may have ended its worker "
                 "repeatedly; `lathe move` moves it all the same"
               : "";
}

// Returns why a recovery waits for another try; for people. Empty: it does not.
std::string RecoveryWaitReason(const Model& model) {
  if (model.recovery == nullptr || model.recovery->last_error.empty()) return "";
  return absl::StrCat("its model is being recovered, and waits for another try: ",
                      model.recovery->last_error);
}

NotifyModelState StateOf(State& s, const Model& model) {
  NotifyModelState state{.model_id = model.row.model_id};
  if (model.num_live_requests == 0) return state;  // no request waits
  state.is_away = model.recovery != nullptr;
  state.reason = MigrationWaitReason(s, model);
  if (state.reason.empty()) state.reason = RecoveryWaitReason(model);
  if (const auto gap = model.order.FirstGap()) {
    state.missing_seq = gap->missing_seq;
    state.gap_closes_at = gap->waited_since + s.options.gap_timeout;
  }
  return state;
}

}  // namespace

void NotifyModelStates(State& s) {
  for (const std::string& id : IndexOf(s).noticed.Next(s.options.max_swept)) {
    const Model& model = std::as_const(s.models).at(id);
    NotifyModelState state = StateOf(s, model);
    const bool is_held_up = state.is_away || state.missing_seq > 0 || !state.reason.empty();
    const bool is_notified =
        model.notified == state || (model.notified.model_id.empty() && !is_held_up);
    if (is_notified) continue;
    s.models.at(id).notified = state;
    s.fx.After(std::move(state));
  }
}

}  // namespace lathe::engine
