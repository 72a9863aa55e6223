#include "services/engine/core/samplers/sample_queue.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "services/engine/core/requests/requests.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"

namespace lathe::engine {
namespace {

// Directory of the weights; empty: not on disk.
std::string VersionDir(const State& s, const Sampler& sampler) {
  if (!sampler.unnamed()) return sampler.row.checkpoint_dir;
  const auto version = s.versions.find(sampler.row.version_id);
  const bool on_disk = version != s.versions.end() && version->second.on_disk();
  return on_disk ? version->second.row.dir : "";
}

// Returns true if the group has the weights or can get them from disk or memory.
bool CanGet(const State& s, const Group& group, const Sampler& sampler) {
  if (!sampler.unnamed() || CanBeSampled(s, group, sampler)) return true;
  const auto version = s.versions.find(sampler.row.version_id);
  return group.transfers.count(sampler.row.version_id) > 0 ||
         (version != s.versions.end() && CanTransfer(s, group, version->second));
}

// Returns true if PlaceSamples has not come to the request yet.
bool IsUnplaced(const State& s, const Request& request) {
  const int64_t* const from = Find(s.unplaced_from, request.group);
  return from != nullptr && request.order >= *from;
}

}  // namespace

Group* HomeOf(State& s, const Sampler& sampler) {
  // The model stays after its unload, as long as its session.
  const Model* const model = Find(s.models, sampler.row.model_id);
  return model == nullptr ? nullptr : Find(s.groups, model->row.group);
}

Group* GroupForSampler(State& s, const Sampler& sampler) {
  if (sampler.unnamed()) {
    Group* const home = HomeOf(s, sampler);
    const bool is_on_disk = !VersionDir(s, sampler).empty();
    const bool can_home = home != nullptr && home->can_sample();
    const bool is_best = can_home && home->usable() && !home->row.is_draining;
    if (is_best || (can_home && !is_on_disk)) return home;
  }
  const auto rank = [](const Group& group) {
    return std::tuple(!group.usable(), group.row.is_draining, group.samples.tokens(),
                      group.sample_window.num_sequences());
  };
  Group* best = nullptr;
  for (auto& [name, group] : s.groups) {
    if (group.row.base_model != sampler.row.base_model || !group.can_sample()) continue;
    if (!CanGet(s, group, sampler)) continue;
    if (best == nullptr || rank(group) < rank(*best)) best = &group;
  }
  return best;
}

bool CanBeSampled(const State& s, const Group& group, const Sampler& sampler) {
  const std::string& version_id = sampler.row.version_id;
  return version_id.empty() || group.version_ids.count(version_id) > 0 ||
         !VersionDir(s, sampler).empty();
}

void LoadVersionOnce(State& s, Group& group, const Sampler& sampler) {
  const SamplerRow& row = sampler.row;
  const std::string dir = VersionDir(s, sampler);
  if (dir.empty() || !group.version_ids.insert(row.version_id).second) return;
  Version* const version = sampler.unnamed() ? Find(s.versions, row.version_id) : nullptr;
  if (version != nullptr) RecordReader(*version, group);
  const bool is_inflight = version != nullptr && version->row.is_inflight;
  s.fx.Send(group.row.group, group.row.epoch,
            SendLoadVersion{row.version_id, dir, is_inflight ? version->seq_id : 0});
}

void QueueSample(State& s, Request& request) {
  const Sampler& sampler = s.samplers.at(request.row.owner_id);
  Group* const group = GroupForSampler(s, sampler);
  // It waits for the next group that samples.
  if (group == nullptr) return MoveToGroup(s, request, "");
  SetGroup(s, request, group->row.group);
  QueueAtItsGroup(s, request);
}

void QueueAtItsGroup(State& s, Request& request) {
  Group& group = s.groups.at(request.group);
  const Sampler& sampler = s.samplers.at(request.row.owner_id);
  // The older samples of the group come first.
  if (!group.usable() || IsUnplaced(s, request)) return;
  if (AwaitTransfer(s, group, sampler) || !CanBeSampled(s, group, sampler)) return;
  s.follow_ups.groups.insert(request.group);
  if (request.is_quarantined) {
    group.quarantined[request.order] = request.row.request_id;
    return;
  }
  const auto& args = std::get<SampleArgs>(request.plan->args);
  const int64_t tokens = args.prompt_tokens + args.num_samples * request.plan->max_tokens;
  group.samples.Push(request.row.tenant_id, request.row.owner_id,
                     {request.row.request_id, std::max<int64_t>(1, tokens)});
}

void QueueSamplesOf(State& s, const std::set<std::string>& version_ids) {
  std::map<int64_t, std::string> samples;
  for (const std::string& version_id : version_ids) {
    for (const std::string& sampler_id : s.samplers.IdsWith(version_id)) {
      samples.merge(std::map(s.samplers.at(sampler_id).pending));
    }
  }
  for (const auto& [order, id] : samples) {
    Request& request = s.requests.at(id);
    const Group* const group = Find(s.groups, request.group);
    const bool is_sent = group != nullptr && group->sample_window.Has(id);
    // Its worker is away and may come back with the sample.
    const bool may_come = group != nullptr && !group->usable() && MayRun(s, request);
    if (is_sent || may_come) continue;
    MoveToGroup(s, request, "");  // removes it from a queue, if it is in one
    QueueSample(s, request);
  }
}

void MoveSamplesOf(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) {
    if (!group.usable()) continue;
    for (const auto& [id, entry] : group.sample_window.requests()) {
      const Sampler* const sampler = Find(s.samplers, s.requests.at(id).row.owner_id);
      const bool is_its = sampler != nullptr && sampler->row.version_id == version_id;
      if (!is_its) continue;
      const bool has_it = group.version_ids.count(version_id) > 0;
      if (has_it || AwaitTransfer(s, group, *sampler)) break;
      if (VersionDir(s, *sampler).empty()) {
        // The samples switch when it is written.
        SaveVersionsOf(s, s.models.at(sampler->row.model_id));
      } else {
        LoadVersionOnce(s, group, *sampler);
      }
      break;
    }
  }
}

}  // namespace lathe::engine
