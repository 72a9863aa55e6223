#include "services/engine/core/models/snapshots.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/models/model_history.h"
#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"
#include "services/engine/core/state/model_facts.h"
#include "services/engine/ledger/gradient_window.h"

namespace lathe::engine {
namespace {

// Stretches the interval so that the snapshots of all models of the group, which took `write_time`,
// stay within snapshot_share of the worker's time.
int64_t IntervalOf(const State& s, int64_t write_time) {
  const double share = std::max(s.options.snapshot_share, 1e-6);
  return std::max(s.options.snapshot_interval,
                  static_cast<int64_t>(static_cast<double>(write_time) / share));
}

bool CanBeWritten(const Model& model) {
  return model.row.state == ModelState::kReady && model.recovery == nullptr && HasChanged(model);
}

bool IsDue(const State& s, const Model& model, int64_t interval) {
  if (s.drained_at > 0) return model.snapshot_tried_at < s.drained_at;
  const int64_t waited = s.now - model.snapshot_tried_at;
  const bool is_long = model.log.bytes() > s.options.snapshot_log_bytes;
  return model.snapshot_wanted || waited >= interval || (is_long && waited >= kSecond);
}

// A model in migration, else the due model that has waited longest; nullptr: none. Looks at as many
// models as a sweep handles.
Model* NextDue(State& s, const Group& group) {
  int64_t write_time = 0;
  std::set<std::string> ids;
  IndexOf(s).VisitGroup(group.row.group, [&](ModelsAt& models) {
    write_time += models.write_time;
    const std::vector<std::string> next = models.writable.Next(s.options.max_swept);
    ids.insert(next.begin(), next.end());
  });
  const int64_t interval = IntervalOf(s, write_time);
  const Model* next = nullptr;
  for (const std::string& id : ids) {
    const Model& model = std::as_const(s.models).at(id);
    if (!CanBeWritten(model) || !IsDue(s, model, interval)) continue;
    const bool is_first = next == nullptr || model.snapshot_tried_at < next->snapshot_tried_at;
    if (is_first || model.migrating_since > 0) next = &model;
    if (model.migrating_since > 0) break;
  }
  return next == nullptr ? nullptr : &s.models.at(next->row.model_id);
}

void Begin(State& s, Group& group, Model& model) {
  SaveVersionsOf(s, model);
  group.snapshot_id = "c" + NewId(s);
  group.snapshot_model_id = model.row.model_id;
  model.snapshot_tried_at = s.now;
  model.snapshot_wanted = false;
  s.fx.Send(group.row.group, group.row.epoch,
            SendSnapshot{group.snapshot_id, model.row.model_id, model.row.tenant_id, s.term});
}

void Schedule(State& s, Group& group) {
  if (s.options.snapshot_interval <= 0 || !group.usable() || !group.snapshot_id.empty()) return;
  if (!group.quarantined.empty()) return;  // quarantined requests run alone
  if (Model* const model = NextDue(s, group)) Begin(s, group, *model);
}

// Returns true if a written snapshot agrees with the ledger of the model. A worker reports results
// before the snapshots that include them.
bool IsOfUse(const Model* model, const HeldModel& written) {
  if (model == nullptr || model->row.state != ModelState::kReady || model->recovery != nullptr) {
    return false;
  }
  const GradientWindow& gradient = model->gradient;
  const bool known = std::all_of(written.window.begin(), written.window.end(), [&](int64_t seq) {
    return gradient.Contains(seq) || seq <= gradient.from_seq();
  });
  const int64_t last = model->snapshots.empty() ? 0 : model->snapshots.back().applied_seq;
  return known && last <= written.applied_seq && written.applied_seq <= gradient.applied_seq();
}

}  // namespace

bool HasChanged(const Model& model) {
  const ModelPoint now = PointOf(model);
  if (model.snapshots.empty()) {
    return now.applied_seq > 0 || !now.window.empty() || model.created_from;
  }
  const ModelPoint last = PointOf(model.snapshots.back());
  return now.applied_seq != last.applied_seq || now.window != last.window;
}

void ScheduleSnapshots(State& s) {
  for (auto& [name, group] : s.groups) Schedule(s, group);
  // Versions of unloaded models cannot be made again. Others are needed as files by groups that
  // sample.
  for (const std::string& id : s.unsaved_versions.Next(s.options.max_swept)) {
    const Version& version = s.versions.at(id);
    if (!version.saving_dir.empty()) continue;
    if (version.on_disk()) {
      IndexSaved(s, version);
      continue;
    }
    const Model* const model = Find(s.models, version.row.model_id);
    if (model == nullptr) continue;
    const Group* const home = Find(s.groups, model->row.group);
    const bool is_needed = home != nullptr && NeedsFiles(s, *home);
    if (is_needed || model->row.state == ModelState::kUnloaded) SaveVersionsOf(s, *model);
  }
}

void OnSnapshotDone(State& s, const WorkerSnapshotDone& event) {
  Group* const group = Find(s.groups, event.group);
  const bool waited_for = group != nullptr && group->row.epoch == event.epoch &&
                          group->snapshot_id == event.snapshot_id;
  if (!waited_for) return s.fx.After(DeleteFiles{event.snapshot_id});
  Model* const model = Find(s.models, group->snapshot_model_id);
  group->snapshot_id.clear();
  group->snapshot_model_id.clear();
  if (event.error || !IsOfUse(model, event.model)) {
    s.fx.After(DeleteFiles{event.snapshot_id});
    return Schedule(s, *group);
  }
  SnapshotRow row;
  row.snapshot_id = event.snapshot_id;
  row.model_id = model->row.model_id;
  row.applied_seq = event.model.applied_seq;
  row.window = EncodeSeqs(event.model.window);
  row.size_bytes = event.size_bytes;
  row.manifest_sha256 = event.manifest_sha256;
  row.term = s.term;
  row.created_at = s.now;
  model->snapshot_write_time = event.write_time;
  s.fx.Put(PutSnapshot{row});
  model->snapshots.push_back(std::move(row));
  TrimHistory(s, *model);
  Schedule(s, *group);
}

void OnVersionSaved(State& s, const WorkerVersionSaved& event) {
  Version* const version = Find(s.versions, event.version_id);
  if (version != nullptr && version->saving_dir == event.dir) {
    version->saving_dir.clear();
    version->failed = event.error.has_value();
    IndexSaved(s, *version);
    s.follow_ups.models.insert(version->row.model_id);
  }
  const bool is_here = version != nullptr && version->written_dirs.count(event.dir) > 0;
  if (!is_here || version->on_disk() || event.error) {
    return s.fx.After(DeleteFiles{event.dir});
  }
  const std::string earlier = version->row.dir;
  const bool is_read = version->readers.count(earlier) > 0;  // then its last reader deletes it
  if (!earlier.empty() && !is_read) s.fx.After(DeleteFiles{earlier});
  version->row.dir = event.dir;
  version->row.seq_id = event.seq_id;
  version->row.size_bytes = event.size_bytes;
  version->row.manifest_sha256 = event.manifest_sha256;
  s.fx.Put(PutVersion{version->row});
  IndexSaved(s, *version);
  if (version->on_disk()) {
    CancelUnservedTransfers(s, event.version_id);
    MoveSamplesOf(s, event.version_id);
  }
  QueueSamplesOf(s, {event.version_id});  // also samples of a version that was lost before
  Model* const model = Find(s.models, version->row.model_id);
  if (model != nullptr) TrimHistory(s, *model);
}

void AbandonWriting(State& s, Group& group, bool process_lost) {
  if (!group.snapshot_id.empty()) {
    s.fx.After(DeleteFiles{group.snapshot_id});
    if (Model* const model = Find(s.models, group.snapshot_model_id)) {
      model->snapshot_wanted = true;
    }
    group.snapshot_id.clear();
    group.snapshot_model_id.clear();
  }
  for (const std::string& id : s.unsaved_versions.ids()) {
    Version& version = s.versions.at(id);
    const Group* const home = HomeOf(s, version);
    if (home != &group || version.saving_dir.empty()) continue;
    if (process_lost) {
      s.fx.After(DeleteFiles{version.saving_dir});
      version.written_dirs.erase(version.saving_dir);
    }
    version.saving_dir.clear();
  }
}

bool IsWritingForDrain(State& s) {
  if (s.drained_at == 0) s.drained_at = s.now;
  ScheduleSnapshots(s);
  return std::any_of(s.groups.begin(), s.groups.end(), [](const auto& entry) {
    return entry.second.usable() && !entry.second.snapshot_id.empty();
  });
}

}  // namespace lathe::engine
