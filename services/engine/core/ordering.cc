#include "services/engine/core/ordering.h"

#include "services/engine/core/models.h"
#include "services/engine/core/operations.h"
#include "services/engine/core/requests.h"
#include "services/engine/core/versions.h"

namespace lathe::engine {

void Advance(State& s, Model& model) {
  if (model.row.state == ModelState::kCreating || model.recovery != nullptr) return;
  if (model.migrating_since > 0) return;  // starts after the migration
  // Starting an operation may end it at once, which may make the next one ready.
  for (auto ready = model.order.TakeReady(); !ready.empty(); ready = model.order.TakeReady()) {
    for (const int64_t seq : ready) {
      Request* const request = FindByKey(s, model.row.model_id, OpClass::kTrain, seq);
      if (request != nullptr && request->live()) Begin(s, model, *request);
    }
  }
  if (model.unload_request_id.empty() || !model.order.Unresolved().empty()) return;
  Request* const unload = Find(s.requests, model.unload_request_id);
  if (unload != nullptr && unload->live() && unload->row.state == RequestState::kAccepted) {
    if (!AreVersionsBeingSaved(s, model)) Begin(s, model, *unload);
  }
}

void CloseGaps(State& s, Model& model) { CloseGapsThrough(s, model, model.order.max_seq()); }

void CloseGapsThrough(State& s, Model& model, int64_t seq) {
  if (!model.order.IsMissingBelow(seq + 1)) return;
  model.order.Close(seq);
  PutRow(s, model);
  s.dirty_models.insert(model.row.model_id);
}

void CloseOverdueGaps(State& s) {
  for (auto& [id, model] : s.models) {
    const auto overdue = model.order.OverdueAboveGap(s.now - s.options.gap_timeout);
    if (overdue) CloseGapsThrough(s, model, *overdue - 1);
  }
}

}  // namespace lathe::engine
