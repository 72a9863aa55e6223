#include "services/engine/core/samplers/versions.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

constexpr size_t kNewestKept = 4;
constexpr absl::string_view kInflight = "@inflight";

// Cancels the transfers of a version that has newer weights or is dropped.
void CancelTransfers(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) group.transfers.erase(version_id);
}

Version& AddVersion(State& s, const std::string& version_id, const Model& model) {
  Version version;
  version.row.version_id = version_id;
  version.row.model_id = model.row.model_id;
  version.row.tenant_id = model.row.tenant_id;
  return s.versions.Add(version_id, std::move(version));
}

}  // namespace

std::string InflightVersionId(const std::string& model_id) {
  return absl::StrCat(model_id, kInflight);
}

bool IsInflightVersion(const std::string& version_id) {
  return absl::EndsWith(version_id, kInflight);
}

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
    if (!sampler->pending.empty()) continue;
    bytes -= sampler->row.version_bytes;
    sampler->row.version_dropped = true;
    s.fx.Put(PutSampler{sampler->row});
    DropVersion(s, sampler->row.version_id);
  }
}

void RecordPublication(State& s, const std::string& version_id, const Model& model, int64_t seq_id,
                       bool is_inflight) {
  Version* const known = Find(s.versions, version_id);
  Version& version = known != nullptr ? *known : AddVersion(s, version_id, model);
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

void ForgetVersion(State& s, const std::string& version_id) {
  if (s.versions.count(version_id) == 0) return;
  const Version version = s.versions.Take(version_id);
  s.follow_ups.models.insert(version.row.model_id);  // an unload of the model may wait for the file
  if (!version.row.dir.empty()) {
    s.fx.Put(DeleteVersion{version_id});
    s.fx.After(DeleteFiles{version.row.dir});
  }
  for (const auto& [dir, groups] : version.readers) {
    if (dir != version.row.dir) s.fx.After(DeleteFiles{dir});
  }
  CancelTransfers(s, version_id);
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
  if (s.samplers.IdsWith(version_id).empty()) DropVersion(s, version_id);
}

void SaveVersionsOf(State& s, const Model& model) {
  const Group* const group = Find(s.groups, model.row.group);
  if (group == nullptr || !group->usable()) return;
  for (const std::string& id : s.versions.IdsWith(model.row.model_id)) {
    Version& version = s.versions.at(id);
    const bool is_here = group->version_ids.count(id) > 0;
    if (version.on_disk() || !is_here || !version.saving_dir.empty()) continue;
    version.saving_dir = "c" + NewId(s);
    version.written_dirs.insert(version.saving_dir);
    s.fx.Send(group->row.group, group->row.epoch,
              SendSaveVersion{id, version.row.model_id, version.row.tenant_id, version.saving_dir,
                              s.term});
  }
}

bool AreVersionsBeingSaved(State& s, const Model& model) {
  SaveVersionsOf(s, model);
  const std::set<std::string>& ids = s.versions.IdsWith(model.row.model_id);
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    const Version& version = s.versions.at(id);
    return !version.saving_dir.empty() && !version.failed;
  });
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

void CancelUnservedTransfers(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) {
    const WeightTransfer* const transfer = Find(group.transfers, version_id);
    if (transfer != nullptr && !transfer->is_served) group.transfers.erase(version_id);
  }
}

}  // namespace lathe::engine
