#include "services/worker/executor/versions/version_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {

void WeightsInMemory::Add(const AdapterWeights* weights) {
  if (weights == nullptr) return;
  ++num_versions_;
  if (num_users_[weights]++ == 0) num_bytes_ += weights->num_bytes();
}

void WeightsInMemory::Remove(const AdapterWeights* weights) {
  if (weights == nullptr) return;
  --num_versions_;
  const auto it = num_users_.find(weights);
  if (--it->second > 0) return;
  num_bytes_ -= weights->num_bytes();
  num_users_.erase(it);
}

void VersionTable::Put(const std::string& version_id, SamplerVersion version) {
  Drop(version_id);
  Entry& entry = entries_[version_id];
  entry = Entry{.version = std::move(version), .last_used = Touch()};
  in_memory_.Add(entry.version.weights.get());
  may_not_fit_ = true;
}

bool VersionTable::Load(const LoadVersion& command) {
  const auto known = entries_.find(command.version_id);
  const bool is_newer =
      known != entries_.end() && known->second.version.inflight_seq < command.inflight_seq_id;
  if (is_newer) Drop(command.version_id);
  if (Has(command.version_id)) return !entries_.at(command.version_id).is_loading;
  Entry& entry = entries_[command.version_id];
  entry = Entry{.version = {.inflight_seq = command.inflight_seq_id,
                            .publication = {.seq_id = command.inflight_seq_id}},
                .dir = command.dir,
                .served = std::nullopt,
                .is_loading = true,
                .last_used = Touch()};
  if (command.source.has_value()) entry.served = {*command.source, command.source_seq_id};
  Read(command.version_id, entry).IgnoreError();  // the next Fetch tries again
  return false;
}

void VersionTable::Drop(const std::string& version_id) {
  const auto it = entries_.find(version_id);
  if (it == entries_.end()) return;
  in_memory_.Remove(it->second.version.weights.get());
  entries_.erase(it);
}

absl::StatusOr<bool> VersionTable::Fetch(const std::string& version_id) {
  const auto it = entries_.find(version_id);
  if (it == entries_.end()) return true;
  Entry& entry = it->second;
  entry.last_used = Touch();
  if (entry.version.weights != nullptr || !entry.failure.ok()) return true;
  if (entry.ticket == 0) RETURN_IF_ERROR(Read(version_id, entry));
  return false;
}

absl::StatusOr<SamplerVersion> VersionTable::Find(const std::string& version_id) const {
  if (version_id.empty()) return SamplerVersion();
  const auto it = entries_.find(version_id);
  if (it != entries_.end() && !it->second.failure.ok()) return it->second.failure;
  if (it != entries_.end() && it->second.version.weights != nullptr) return it->second.version;
  return NotHere(version_id);
}

absl::Status VersionTable::NotHere(const std::string& version_id) const {
  return absl::NotFoundError(
      absl::StrCat("sampler version ", version_id, " is not on this worker"));
}

absl::Status VersionTable::Read(const std::string& version_id, Entry& entry) {
  if (entry.served.has_value()) return Enqueue(version_id, entry, *entry.served);
  if (entry.dir.empty()) return Enqueue(version_id, entry, ReadSpilled{*entry.spilled});
  return Enqueue(version_id, entry, ReadCheckpoint{entry.dir});
}

absl::Status VersionTable::Enqueue(const std::string& version_id, Entry& entry,
                                   decltype(VersionJob::work) work) {
  absl::Status status = jobs_.Enqueue({.generation = generation_,
                                       .ticket = last_ticket_ + 1,
                                       .version_id = version_id,
                                       .work = std::move(work)});
  if (status.ok()) entry.ticket = ++last_ticket_;
  return status;
}

std::optional<VersionTable::EndedRead> VersionTable::Finish(VersionJobDone done) {
  if (done.generation != generation_) return std::nullopt;
  const bool was_spill = done.is_spill;
  if (was_spill) {
    is_spilling_ = false;
  } else {
    ++counters_.version_loads;
    counters_.version_load_time += done.spent;
  }
  may_not_fit_ = true;
  const auto it = entries_.find(done.version_id);
  // The version was dropped or published again meanwhile.
  if (it == entries_.end() || it->second.ticket != done.ticket) return std::nullopt;
  Entry& entry = it->second;
  entry.ticket = 0;
  if (was_spill) {
    if (done.result.ok()) {
      // If a checkpoint was saved meanwhile, that is read instead.
      if (entry.dir.empty()) entry.spilled = std::get<SpilledWeights>(*std::move(done.result));
      // A spill succeeded, so others may succeed too.
      for (auto& [version_id, other] : entries_) other.cannot_spill = false;
    } else {
      entry.cannot_spill = true;
      LogWarn("a sampler version stays in memory: it cannot be written to disk",
              {{"error", done.result.status().message()}});
    }
    return std::nullopt;
  }
  if (done.result.ok()) {
    entry.version.weights =
        std::get<std::shared_ptr<const AdapterWeights>>(*std::move(done.result));
    in_memory_.Add(entry.version.weights.get());
    if (done.publication.has_value()) entry.version.publication = *std::move(done.publication);
    entry.served.reset();
  } else {
    entry.failure = done.result.status();
  }
  return EndedRead{.version_id = done.version_id,
                   .is_load = std::exchange(entry.is_loading, false)};
}

absl::StatusOr<WriteVersion> VersionTable::BeginSave(const SaveVersion& command) {
  const auto it = entries_.find(command.version_id);
  if (it == entries_.end()) return NotHere(command.version_id);
  Entry& entry = it->second;
  WriteVersion work{.command = command, .publication = entry.version.publication};
  if (work.publication.model_id.empty()) work.read_from = entry.dir;
  if (entry.version.weights != nullptr) {
    work.weights = entry.version.weights;
  } else if (entry.spilled.has_value()) {
    work.weights = ReadSpilled{*entry.spilled};
  } else {
    work.weights = ReadCheckpoint{entry.dir};
  }
  work.ticket = entry.save_ticket = ++last_ticket_;
  return work;
}

void VersionTable::FinishSave(const RecoveryJobDone& done) {
  const auto& report = std::get<VersionSaved>(done.report);
  const auto it = entries_.find(report.version_id);
  // The version was dropped, published or saved again meanwhile.
  if (it == entries_.end() || it->second.save_ticket != done.ticket) return;
  Entry& entry = it->second;
  entry.save_ticket = 0;
  may_not_fit_ = true;
  if (!report.status.ok()) return;
  entry.dir = report.dir;
  entry.spilled.reset();
  entry.cannot_spill = false;
  entry.failure = absl::OkStatus();
}

void VersionTable::Hold(const std::string& version_id) {
  if (!version_id.empty()) ++num_holders_[version_id];
}

void VersionTable::Release(const std::string& version_id) {
  const auto it = num_holders_.find(version_id);
  if (it == num_holders_.end() || --it->second > 0) return;
  num_holders_.erase(it);
  may_not_fit_ = true;
}

void VersionTable::Fit(int64_t max_bytes) {
  const bool may_skip = !may_not_fit_ && max_bytes >= fitted_bytes_;
  if (may_skip || is_spilling_) return;
  may_not_fit_ = false;
  fitted_bytes_ = max_bytes;
  if (NumBytes() <= max_bytes) return;
  for (auto* const candidate : Evictable()) {
    if (NumBytes() <= max_bytes) return;
    auto& [version_id, entry] = *candidate;
    if (entry.dir.empty() && !entry.spilled.has_value()) {
      is_spilling_ = Enqueue(version_id, entry, SpillWeights{entry.version.weights}).ok();
      return;
    }
    in_memory_.Remove(entry.version.weights.get());
    entry.version.weights = nullptr;
    ++counters_.version_evictions;
  }
}

std::vector<std::pair<const std::string, VersionTable::Entry>*> VersionTable::Evictable() {
  std::vector<std::pair<const std::string, Entry>*> versions;
  for (auto& item : entries_) {
    const Entry& entry = item.second;
    if (entry.version.weights == nullptr || entry.ticket != 0 || entry.cannot_spill) continue;
    if (entry.save_ticket != 0) continue;
    if (!num_holders_.contains(item.first)) versions.push_back(&item);
  }
  std::sort(versions.begin(), versions.end(),
            [](const auto* a, const auto* b) { return a->second.last_used < b->second.last_used; });
  return versions;
}

bool VersionTable::Has(const std::string& version_id) const {
  const auto it = entries_.find(version_id);
  return it != entries_.end() && (it->second.failure.ok() || IsReadAgain(it->second));
}

std::vector<HeldVersion> VersionTable::Held() const {
  std::vector<HeldVersion> held;
  for (const auto& [version_id, entry] : entries_) {
    if (!entry.failure.ok() && !IsReadAgain(entry)) continue;
    held.push_back({.version_id = version_id,
                    .seq_id = entry.version.publication.seq_id,
                    .is_loading = entry.is_loading});
  }
  return held;
}

int64_t VersionTable::NumStayingBytes() const {
  WeightsInMemory staying;
  for (const auto& [version_id, entry] : entries_) {
    const bool stays = entry.cannot_spill || num_holders_.contains(version_id);
    if (stays) staying.Add(entry.version.weights.get());
  }
  return staying.num_bytes();
}

bool VersionTable::IsReadAgain(const Entry& entry) {
  return entry.spilled.has_value() && !entry.failure.ok() && !absl::IsDataLoss(entry.failure);
}

void VersionTable::ForgetFailure(const std::string& version_id) {
  const auto it = entries_.find(version_id);
  if (it != entries_.end() && IsReadAgain(it->second)) it->second.failure = absl::OkStatus();
}

}  // namespace lathe::worker
