#include "services/engine/core/model_states.h"

namespace lathe::engine {
namespace {

NotifyModelState StateOf(const State& s, const Model& model) {
  NotifyModelState state{.model_id = model.row.model_id};
  if (model.num_live_requests == 0) return state;  // nobody waits
  state.is_away = model.recovery != nullptr;
  if (const auto gap = model.order.FirstGap()) {
    state.missing_seq = gap->missing_seq;
    state.gap_closes_at = gap->waited_since + s.options.gap_timeout;
  }
  return state;
}

}  // namespace

void TellModelStates(State& s) {
  for (auto& [id, model] : s.models) {
    NotifyModelState state = StateOf(s, model);
    const bool is_told = model.told == state ||
                         (model.told.model_id.empty() && !state.is_away && state.missing_seq == 0);
    if (is_told) continue;
    model.told = state;
    s.fx.After(std::move(state));
  }
}

}  // namespace lathe::engine
