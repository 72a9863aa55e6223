#include "services/engine/core/samplers/transfer_reports.h"

#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "services/engine/core/samplers/sample_queue.h"
#include "services/engine/core/samplers/versions.h"
#include "services/engine/core/samplers/weight_transfer.h"

namespace lathe::engine {
namespace {

// Pause after a failed transfer. It is long compared with a network outage and short compared with
// a training run.
constexpr int64_t kPause = 60 * kSecond;

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

// Ends the transfer that this load completes. Returns true if the version came from memory.
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

}  // namespace

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

void FailTransfer(State& s, Group& reader, const WorkerVersionFailed& event) {
  const WeightTransfer* const transfer = Find(reader.transfers, event.version_id);
  if (transfer != nullptr && transfer->is_served)
    Fail(s, reader, event.version_id, event.error.message);
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

void QueueSamplesFrom(State& s, const Group& home) {
  if (!home.serves_versions || home.can_sample()) return;
  std::set<std::string> version_ids;
  for (const std::string& id : s.unsaved_versions.ids()) {
    const Version& version = s.versions.at(id);
    if (HomeOf(s, version) == &home && !version.on_disk()) version_ids.insert(id);
  }
  if (!version_ids.empty()) QueueSamplesOf(s, version_ids);
}

}  // namespace lathe::engine
