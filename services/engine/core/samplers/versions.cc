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

void CountVersion(State& s, const Sampler& sampler, int64_t sign) {
  const SamplerRow& row = sampler.row;
  if (!sampler.keeps_version()) return;
  const auto num = s.num_unnamed.emplace(row.base_model, 0).first;
  num->second += sign;
  if (num->second == 0) s.num_unnamed.erase(num);
  // A model has one inflight version, which is smaller than the model itself.
  if (row.version_id == InflightVersionId(row.model_id)) return;
  const auto it = s.version_use.try_emplace(row.tenant_id).first;
  TenantVersions& use = it->second;
  use.bytes += sign * row.version_bytes;
  const std::pair<int64_t, int64_t> last_use(sampler.last_sampled_at, sampler.order);
  if (sign > 0) {
    use.by_order[sampler.order] = row.sampling_session_id;
    use.by_last_use[last_use] = row.sampling_session_id;
  } else {
    use.by_order.erase(sampler.order);
    use.by_last_use.erase(last_use);
  }
  if (use.by_order.empty()) s.version_use.erase(it);
}

void RecordSampled(State& s, Sampler& sampler) {
  CountVersion(s, sampler, -1);
  sampler.last_sampled_at = s.now;
  CountVersion(s, sampler, +1);
}

void EnforceVersionBudget(State& s, const std::string& tenant_id) {
  const TenantVersions* const use = Find(s.version_use, tenant_id);
  if (use == nullptr || use->by_order.size() <= kNewestKept) return;
  int64_t bytes = use->bytes;
  const int64_t newest = std::prev(use->by_order.end(), kNewestKept)->first;
  std::vector<Sampler*> dropped;
  Budget budget(s.options.max_swept);
  for (const auto& [last_use, id] : use->by_last_use) {
    if (bytes <= s.options.sampler_versions_bytes || !budget.Take()) break;
    Sampler& sampler = s.samplers.at(id);
    if (sampler.order >= newest || !sampler.pending.empty()) continue;
    bytes -= sampler.row.version_bytes;
    dropped.push_back(&sampler);
  }
  for (Sampler* const sampler : dropped) {
    CountVersion(s, *sampler, -1);
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
  IndexSaved(s, version);
  if (!is_inflight) return;
  CancelTransfers(s, version_id);
  StopReading(s, version, model.row.group, /*all=*/true);  // it has the weights in memory
  // Other groups have loaded an earlier publication. They load this one when they need it.
  for (auto& [name, group] : s.groups) {
    if (name != model.row.group) group.version_ids.erase(version_id);
  }
}

void IndexSaved(State& s, const Version& version) {
  s.unsaved_versions.Set(version.row.version_id, !version.on_disk() || !version.saving_dir.empty());
}

void ForgetVersion(State& s, const std::string& version_id) {
  if (s.versions.count(version_id) == 0) return;
  const Version version = s.versions.Take(version_id);
  s.unsaved_versions.Set(version_id, false);
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
  if (!s.samplers.HasAny(version_id)) DropVersion(s, version_id);
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

void RecordReader(Version& version, Group& group) {
  group.read_version_ids.insert(version.row.version_id);
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

void StopReadingAll(State& s, Group& group) {
  for (const std::string& id : group.read_version_ids) {
    Version* const version = Find(s.versions, id);
    if (version != nullptr) StopReading(s, *version, group.row.group, /*all=*/true);
  }
  group.read_version_ids.clear();
}

void CancelUnservedTransfers(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) {
    const WeightTransfer* const transfer = Find(group.transfers, version_id);
    if (transfer != nullptr && !transfer->is_served) group.transfers.erase(version_id);
  }
}

}  // namespace lathe::engine
