#include "services/engine/core/weight_transfer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "services/engine/core/samplers.h"
#include "services/engine/core/snapshots.h"

namespace lathe::engine {
namespace {

// Pause after a failed transfer. It is long compared with a network outage and short compared with
// a training run.
constexpr int64_t kPause = 60 * kSecond;
// Maximum number of transfers from one group at a time, as its worker keeps a copy of each version
// that it serves. Other versions go through files meanwhile.
constexpr int64_t kMaxTransfers = 4;

int64_t NumTransfersFrom(const State& s, const std::string& group) {
  int64_t num = 0;
  for (const auto& [name, reader] : s.groups) {
    num += std::count_if(reader.transfers.begin(), reader.transfers.end(),
                         [&](const auto& entry) { return entry.second.from == group; });
  }
  return num;
}

bool IsPaused(const State& s, const Group& reader, const std::string& from) {
  const auto until = reader.no_transfer_until.find(from);
  return until != reader.no_transfer_until.end() && s.now < until->second;
}

const Group* HomeOf(const State& s, const Version& version) {
  const auto model = s.models.find(version.row.model_id);
  if (model == s.models.end()) return nullptr;
  const auto home = s.groups.find(model->second.row.group);
  return home == s.groups.end() ? nullptr : &home->second;
}

void Record(State& s, RecordWeightTransfer::Transport transport, const std::string& version_id,
            const std::string& from, const std::string& to, const std::string& why) {
  s.fx.After(RecordWeightTransfer{
      .version_id = version_id, .from = from, .to = to, .transport = transport, .why = why});
}

// Ends a transfer and starts the next one that waits for its turn.
void End(State& s, Group& reader, const std::string& version_id) {
  const std::string from = reader.transfers.at(version_id).from;
  reader.transfers.erase(version_id);
  const Group* const home = Find(s.groups, from);
  if (home != nullptr && NumTransfersFrom(s, from) == kMaxTransfers - 1) QueueSamplesFrom(s, *home);
}

void Fail(State& s, Group& reader, const std::string& version_id, const std::string& why) {
  const std::string from = reader.transfers.at(version_id).from;
  reader.no_transfer_until[from] = s.now + kPause;
  End(s, reader, version_id);
  Record(s, RecordWeightTransfer::Transport::kFailed, version_id, from, reader.row.group, why);
  const Version* const version = Find(s.versions, version_id);
  if (version == nullptr) return;
  const Model* const model = Find(s.models, version->row.model_id);
  if (model != nullptr) SaveVersionsOf(s, *model);
  QueueSamplesOf(s, {version_id});  // another group or a file may serve them now
}

}  // namespace

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

void OnVersionServed(State& s, const WorkerVersionServed& event) {
  const Group* const home = Find(s.groups, event.group);
  Group* const reader = Find(s.groups, event.reader);
  if (home == nullptr || home->row.epoch != event.epoch || reader == nullptr) return;
  WeightTransfer* const transfer = Find(reader->transfers, event.version_id);
  if (transfer == nullptr || transfer->from != event.group || transfer->is_served) return;
  if (event.error) return Fail(s, *reader, event.version_id, event.error->message);
  // The version exists: its removal would have cancelled the transfer.
  const bool is_inflight = s.versions.at(event.version_id).row.is_inflight;
  transfer->is_served = true;
  // The event of a newer publication may still be under way.
  transfer->seq_id = event.seq_id;
  s.fx.Send(reader->row.group, reader->row.epoch,
            SendLoadVersion{.version_id = event.version_id,
                            .dir = "",
                            .inflight_seq_id = is_inflight ? event.seq_id : 0,
                            .source_group = event.group,
                            .source_seq_id = event.seq_id});
}

bool EndTransfer(State& s, Group& reader, const WorkerVersionLoaded& event) {
  const auto it = reader.transfers.find(event.version_id);
  if (it == reader.transfers.end() || !it->second.is_served) return false;
  const WeightTransfer transfer = it->second;
  const bool is_it = event.inflight_seq_id == 0 || event.inflight_seq_id == transfer.seq_id;
  if (!is_it) return false;
  reader.version_ids.insert(event.version_id);
  End(s, reader, event.version_id);
  Record(s, RecordWeightTransfer::Transport::kMemory, event.version_id, transfer.from,
         reader.row.group, "");
  QueueSamplesOf(s, {event.version_id});
  return true;
}

void FailTransfer(State& s, Group& reader, const WorkerVersionFailed& event) {
  const WeightTransfer* const transfer = Find(reader.transfers, event.version_id);
  if (transfer != nullptr && transfer->is_served)
    Fail(s, reader, event.version_id, event.error.message);
}

void CancelTransfers(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) group.transfers.erase(version_id);
}

void CancelUnservedTransfers(State& s, const std::string& version_id) {
  for (auto& [name, group] : s.groups) {
    const WeightTransfer* const transfer = Find(group.transfers, version_id);
    if (transfer != nullptr && !transfer->is_served) group.transfers.erase(version_id);
  }
}

void EndTransferPauses(State& s) {
  std::set<std::string> homes;
  for (auto& [name, reader] : s.groups) {
    for (auto it = reader.no_transfer_until.begin(); it != reader.no_transfer_until.end();) {
      const bool is_over = s.now >= it->second;
      if (is_over) homes.insert(it->first);
      it = is_over ? reader.no_transfer_until.erase(it) : std::next(it);
    }
  }
  for (const std::string& name : homes) {
    if (const Group* const home = Find(s.groups, name)) QueueSamplesFrom(s, *home);
  }
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

void QueueSamplesFrom(State& s, const Group& home) {
  if (!home.serves_versions || home.can_sample()) return;
  std::set<std::string> version_ids;
  for (const auto& [id, version] : s.versions) {
    if (HomeOf(s, version) == &home && !version.on_disk()) version_ids.insert(id);
  }
  if (!version_ids.empty()) QueueSamplesOf(s, version_ids);
}

}  // namespace lathe::engine
