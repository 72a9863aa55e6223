#include "services/engine/core/models/offload.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/engine/core/models/model_history.h"
#include "services/engine/core/models/models.h"
#include "services/engine/core/models/placement.h"
#include "services/engine/core/models/recovery.h"
#include "services/engine/core/models/recovery_need.h"
#include "services/engine/core/models/snapshots.h"
#include "services/engine/core/requests/quotas.h"
#include "services/engine/core/samplers/samplers.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/state/model_facts.h"

namespace lathe::engine {
namespace {

bool HasVersionsInMemoryOnly(const State& s, const Model& model) {
  const std::set<std::string>& ids = s.versions.IdsWith(model.row.model_id);
  return std::any_of(ids.begin(), ids.end(),
                     [&](const std::string& id) { return !s.versions.at(id).on_disk(); });
}

bool IsBeingWritten(const State& s, const Model& model) {
  const Group* const group = Find(s.groups, model.row.group);
  return group != nullptr && group->snapshot_model_id == model.row.model_id;
}

// Drops the open gradient. The next optim_step of the model is refused.
void DropGradient(State& s, Model& model) {
  if (model.gradient.empty()) return;
  model.gradient.Drop();
  PutRow(s, model);
  const bool is_rebuilt = model.recovery != nullptr;
  if (is_rebuilt) NeedRecovery(s, model);  // its target state has changed
  TrimHistory(s, model);
  if (is_rebuilt) return;
  if (const Group* const group = Find(s.groups, model.row.group)) {
    s.fx.Send(model.row.group, group->row.epoch, SendClearGradient{model.row.model_id});
  }
}

void Offload(State& s, Model& model) {
  ForgetRecovery(s, model);
  NeedRecovery(s, model);
  model.num_recoveries_cut = 0;
  model.row.is_offloaded = true;
  PutRow(s, model);
  if (const Group* const group = Find(s.groups, model.row.group)) {
    DropFromWorker(s, *group, model.row.model_id);
  }
}

}  // namespace

bool IsOnDisk(State& s, Model& model, int64_t quiet_since) {
  const bool has_changed =
      model.recovery == nullptr && s.options.snapshot_interval > 0 && HasChanged(model);
  if (!has_changed && !HasVersionsInMemoryOnly(s, model)) return !IsBeingWritten(s, model);
  const bool is_due = model.snapshot_tried_at <= quiet_since ||
                      s.now - model.snapshot_tried_at >= s.options.snapshot_interval;
  if (is_due && has_changed) {
    model.snapshot_wanted = true;  // the versions are written with it
  } else if (is_due) {
    model.snapshot_tried_at = s.now;
    SaveVersionsOf(s, model);
  }
  return false;
}

void OffloadSession(State& s, Session& session, Budget& budget) {
  if (session.num_live_requests > 0) return;
  bool all_offloaded = true;
  for (const std::string& model_id : session.model_ids) {
    Model& model = s.models.at(model_id);
    const bool is_offloaded = model.gradient.empty() && !IsOnWorker(model);
    if (is_offloaded) continue;
    if (!budget.Take()) return;
    if (model.row.state == ModelState::kReady) DropGradient(s, model);
    if (!IsOnWorker(model)) continue;
    if (IsOnDisk(s, model, session.last_sign_at)) {
      Offload(s, model);
    } else {
      all_offloaded = false;
    }
  }
  if (!all_offloaded) return;
  session.is_offloaded = true;
  MakeIdle(s, session, budget);
}

void ResumeSession(State& s, Session& session) {
  session.is_offloaded = false;
  Budget budget(s.options.max_swept);
  MakeBusy(s, session, budget);
  const bool is_over = session.idle_sampler_ids.empty();
  s.due_sessions.Set(session.row.session_id, is_over ? SilentAt(s, session) : s.now);
}

int64_t SilentAt(const State& s, const Session& session) {
  return session.last_sign_at + s.options.session_timeout + 1;
}

void OffloadIdleModels(State& s) {
  DueTimes& idle = IndexOf(s).idle;
  Budget budget(s.options.max_swept);
  std::vector<std::string> again;
  while (budget.Take()) {
    const std::optional<std::string> id = idle.Take(s.now);
    if (!id) break;
    Model& model = s.models.at(*id);
    if (IsOnDisk(s, model, model.row.last_request_at)) {
      Offload(s, model);
    } else {
      again.push_back(*id);
    }
  }
  for (const std::string& id : again) idle.Set(id, s.now);
}

std::optional<ErrorInfo> ResumeOffloaded(State& s, Model& model) {
  if (auto error = OverAdapters(s, model.row.tenant_id)) return error;
  model.row.is_offloaded = false;
  model.recovery->resumes = true;
  model.recovery->began_at = s.now;
  const Group* const kept = Find(s.groups, model.row.group);
  if (kept == nullptr || kept->row.base_model != model.row.base_model) {
    if (const Group* const group = GroupForModel(s, model.row.base_model)) {
      SetGroup(s, model, group->row.group);
    }
  }
  PutRow(s, model);
  Group* const group = Find(s.groups, model.row.group);
  if (group != nullptr && group->usable()) StartRecoveries(s, *group);
  return std::nullopt;
}

}  // namespace lathe::engine
