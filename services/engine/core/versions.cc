#include "services/engine/core/versions.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "services/engine/core/recovery.h"
#include "services/engine/core/samplers.h"
#include "services/engine/core/weight_transfer.h"

namespace lathe::engine {
namespace {

constexpr size_t kNewestKept = 4;

}  // namespace

void EnforceVersionBudget(State& s, const std::string& tenant_id) {
  std::vector<Sampler*> versions;
  int64_t bytes = 0;
  for (auto& [id, sampler] : s.samplers) {
    if (sampler.row.tenant_id != tenant_id || !sampler.unnamed()) continue;
    if (sampler.lost || sampler.row.version_dropped) continue;
    // A model has one inflight version, which is smaller than the model itself.
    if (sampler.row.version_id == InflightVersionId(sampler.row.model_id)) continue;
    versions.push_back(&sampler);
    bytes += sampler.row.version_bytes;
  }
  if (bytes <= s.options.sampler_versions_bytes || versions.size() <= kNewestKept) return;
  std::sort(versions.begin(), versions.end(),
            [](const Sampler* a, const Sampler* b) { return a->order > b->order; });
  versions.erase(versions.begin(), versions.begin() + kNewestKept);
  std::sort(versions.begin(), versions.end(), [](const Sampler* a, const Sampler* b) {
    return std::pair(a->last_sampled_at, a->order) < std::pair(b->last_sampled_at, b->order);
  });
  for (Sampler* const sampler : versions) {
    if (bytes <= s.options.sampler_versions_bytes) return;
    if (sampler->num_pending > 0) continue;
    bytes -= sampler->row.version_bytes;
    sampler->row.version_dropped = true;
    s.fx.Put(PutSampler{sampler->row});
    DropVersion(s, sampler->row.version_id);
  }
}

void RecordPublication(State& s, const std::string& version_id, const Model& model, int64_t seq_id,
                       bool is_inflight) {
  Version& version = s.versions[version_id];
  version.row.version_id = version_id;
  version.row.model_id = model.row.model_id;
  version.row.tenant_id = model.row.tenant_id;
  version.row.is_inflight = is_inflight;
  version.seq_id = std::max(version.seq_id, seq_id);
  if (!is_inflight) return;
  CancelTransfers(s, version_id);
  StopReading(s, version, model.row.group, /*all=*/true);  // it has the weights in memory
  // Other groups have loaded an earlier publication. They load this one when they need it.
  for (auto& [name, group] : s.groups) {
    if (name != model.row.group) group.version_ids.erase(version_id);
  }
}

void RecordReader(Version& version, const Group& group) {
  version.readers[version.row.dir].insert(group.row.group);
}

void StopReading(State& s, Version& version, const std::string& group, bool all) {
  for (auto it = version.readers.begin(); it != version.readers.end();) {
    auto& [dir, groups] = *it;
    const bool is_earlier = dir != version.row.dir;
    if (is_earlier || all) groups.erase(group);
    if (groups.empty() && is_earlier) s.fx.After(DeleteFiles{dir});
    it = groups.empty() ? version.readers.erase(it) : std::next(it);
  }
}

void StopReadingAll(State& s, const std::string& group) {
  for (auto& [id, version] : s.versions) StopReading(s, version, group, /*all=*/true);
}

// Reports that a group other than the model's read the version from a file.
void RecordFile(State& s, const Version& version, const std::string& reader) {
  const Model* const model = Find(s.models, version.row.model_id);
  if (model == nullptr || model->row.group == reader) return;
  s.fx.After(RecordWeightTransfer{.version_id = version.row.version_id,
                                  .from = model->row.group,
                                  .to = reader,
                                  .transport = RecordWeightTransfer::Transport::kFile,
                                  .why = ""});
}

void OnVersionLoaded(State& s, const WorkerVersionLoaded& event) {
  Group* const group = Find(s.groups, event.group);
  Version* const version = Find(s.versions, event.version_id);
  if (group == nullptr || group->row.epoch != event.epoch || version == nullptr) return;
  const bool is_from_memory = EndTransfer(s, *group, event);
  const bool is_from_file = !is_from_memory && group->version_ids.count(event.version_id) > 0;
  if (is_from_file) RecordFile(s, *version, event.group);
  const bool is_of_file = event.inflight_seq_id == version->row.seq_id;
  if (is_from_memory || is_of_file) StopReading(s, *version, event.group, is_from_memory);
}

void ForgetVersion(State& s, const std::string& version_id) {
  const auto it = s.versions.find(version_id);
  if (it == s.versions.end()) return;
  s.dirty_models.insert(it->second.row.model_id);  // an unload of the model may wait for the file
  if (!it->second.row.dir.empty()) {
    s.fx.Put(DeleteVersion{version_id});
    s.fx.After(DeleteFiles{it->second.row.dir});
  }
  for (const auto& [dir, groups] : it->second.readers) {
    if (dir != it->second.row.dir) s.fx.After(DeleteFiles{dir});
  }
  s.versions.erase(it);
  CancelTransfers(s, version_id);
}

void RegainVersion(State& s, Sampler& sampler) {
  if (sampler.row.version_dropped) return;
  const Version* const version = Find(s.versions, sampler.row.version_id);
  if (version != nullptr && version->on_disk()) return;
  Model& model = s.models.at(sampler.row.model_id);
  const bool can_be_made = version != nullptr && model.row.state == ModelState::kReady;
  if (!can_be_made) return LoseVersion(s, sampler);
  NeedRecovery(s, model);  // a running recovery may be past it already
}

void DropVersion(State& s, const std::string& version_id) {
  std::set<std::string> readers;
  for (const auto& [name, group] : s.groups) {
    if (group.transfers.count(version_id) > 0) readers.insert(name);
  }
  ForgetVersion(s, version_id);
  const Model* const model = Find(s.models, version_id.substr(0, version_id.rfind('@')));
  for (auto& [name, group] : s.groups) {
    // A recovery that was cut may have published it again, or the worker has an earlier
    // publication.
    const bool may_have_it =
        (model != nullptr && model->row.group == name) || IsInflightVersion(version_id);
    const bool is_coming = readers.count(name) > 0;
    if (group.version_ids.erase(version_id) == 0 && !is_coming && !may_have_it) continue;
    s.fx.Send(name, group.row.epoch, SendDropVersion{version_id});
  }
}

void DropVersionIfUnused(State& s, const std::string& version_id) {
  for (const auto& [id, sampler] : s.samplers) {
    if (sampler.row.version_id == version_id) return;
  }
  DropVersion(s, version_id);
}

}  // namespace lathe::engine
