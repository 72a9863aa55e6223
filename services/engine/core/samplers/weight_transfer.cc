#include "services/engine/core/samplers/weight_transfer.h"

#include <algorithm>
#include <iterator>

#include "services/engine/core/samplers/versions.h"

namespace lathe::engine {
namespace {

bool IsPaused(const State& s, const Group& reader, const std::string& from) {
  const auto until = reader.no_transfer_until.find(from);
  return until != reader.no_transfer_until.end() && s.now < until->second;
}

}  // namespace

int64_t NumTransfersFrom(const State& s, const std::string& group) {
  int64_t num = 0;
  for (const auto& [name, reader] : s.groups) {
    num += std::count_if(reader.transfers.begin(), reader.transfers.end(),
                         [&](const auto& entry) { return entry.second.from == group; });
  }
  return num;
}

const Group* HomeOf(const State& s, const Version& version) {
  const auto model = s.models.find(version.row.model_id);
  if (model == s.models.end()) return nullptr;
  const auto home = s.groups.find(model->second.row.group);
  return home == s.groups.end() ? nullptr : &home->second;
}

bool CanTransfer(const State& s, const Group& reader, const Version& version) {
  const Group* const home = HomeOf(s, version);
  if (home == nullptr || home == &reader || home->can_sample() || !home->usable()) return false;
  const bool is_there =
      home->serves_versions && home->version_ids.count(version.row.version_id) > 0;
  return is_there && reader.usable() && reader.can_sample() &&
         reader.row.base_model == home->row.base_model && !IsPaused(s, reader, home->row.group);
}

bool NeedsFiles(const State& s, const Group& home) {
  if (home.can_sample()) return false;
  return !home.serves_versions ||
         std::any_of(s.groups.begin(), s.groups.end(),
                     [&](const auto& entry) { return IsPaused(s, entry.second, home.row.group); });
}

bool AwaitTransfer(State& s, Group& reader, const Sampler& sampler) {
  const std::string& version_id = sampler.row.version_id;
  if (!sampler.unnamed() || reader.version_ids.count(version_id) > 0) return false;
  if (reader.transfers.count(version_id) > 0) return true;
  const Version* const version = Find(s.versions, version_id);
  if (version == nullptr || version->on_disk() || !CanTransfer(s, reader, *version)) return false;
  const Group& home = *HomeOf(s, *version);
  if (NumTransfersFrom(s, home.row.group) >= kMaxTransfers) {
    SaveVersionsOf(s, s.models.at(version->row.model_id));
    return true;
  }
  reader.transfers[version_id] = {.from = home.row.group, .seq_id = version->seq_id};
  s.fx.Send(home.row.group, home.row.epoch,
            SendServeVersion{.version_id = version_id,
                             .reader = reader.row.group,
                             .num_reads = static_cast<int64_t>(reader.ranks.size())});
  return true;
}

void AbandonTransfers(State& s, Group& group) {
  group.transfers.clear();
  for (auto& [name, reader] : s.groups) {
    for (auto it = reader.transfers.begin(); it != reader.transfers.end();) {
      const bool is_asked_again = it->second.from == group.row.group && !it->second.is_served;
      it = is_asked_again ? reader.transfers.erase(it) : std::next(it);
    }
  }
}

}  // namespace lathe::engine
