#include "services/engine/core/drain.h"

#include <algorithm>

#include "services/engine/core/snapshots.h"

namespace lathe::engine {
namespace {

bool CanComplete(State& s, const Request& request) {
  const Group* const group = Find(s.groups, request.group);
  if (group == nullptr || !group->usable()) return false;
  if (request.row.op_class != OpClass::kTrain) return true;
  const Model* const model = Find(s.models, request.plan->model_id);
  return model != nullptr && (model->row.state == ModelState::kCreating ||
                              !model->order.IsMissingBelow(request.row.seq_id));
}

bool AnythingRuns(State& s) {
  return std::any_of(s.live.begin(), s.live.end(), [&](const auto& entry) {
    return CanComplete(s, s.requests.at(entry.second));
  });
}

}  // namespace

void OnDrain(State& s, const Drain& event) {
  s.draining = true;
  s.drain_calls.push_back(event.call);
}

void AnswerDrain(State& s) {
  if (s.drain_calls.empty() || AnythingRuns(s) || IsWritingForDrain(s)) return;
  Answer answer;
  answer.pending_requests = static_cast<int64_t>(s.live.size());
  for (const auto& [id, model] : s.models) {
    const bool unsaved = model.gradient.applied_seq() > model.row.saved_seq;
    const bool is_gone = model.row.state != ModelState::kReady || model.row.is_offloaded;
    if (unsaved && !is_gone) answer.unsaved_model_ids.push_back(id);
  }
  for (const CallId call : s.drain_calls) {
    answer.call = call;
    s.fx.After(answer);
  }
  s.drain_calls.clear();
}

}  // namespace lathe::engine
