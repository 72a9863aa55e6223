#include "services/worker/executor/versions/served_versions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace lathe::worker {

ServedVersions::Entry* ServedVersions::Find(const std::string& version_id) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.version_id == version_id; });
  return it == entries_.end() ? nullptr : &*it;
}

void ServedVersions::Put(const std::string& version_id, ServedVersion version, int64_t num_reads) {
  absl::MutexLock lock(&mu_);
  Entry* const known = Find(version_id);
  if (known != nullptr && known->version->header.seq_id == version.header.seq_id) {
    known->num_reads += num_reads;
    return;
  }
  std::erase_if(entries_, [&](const Entry& entry) { return entry.version_id == version_id; });
  if (entries_.size() == kMaxVersions) entries_.pop_front();
  entries_.push_back({.version_id = version_id,
                      .version = std::make_shared<const ServedVersion>(std::move(version)),
                      .num_reads = num_reads});
}

absl::StatusOr<std::shared_ptr<const ServedVersion>> ServedVersions::Take(
    const std::string& version_id, int64_t seq_id) {
  absl::MutexLock lock(&mu_);
  Entry* const entry = Find(version_id);
  if (entry == nullptr || entry->version->header.seq_id != seq_id) {
    return absl::NotFoundError(
        absl::StrFormat("sampler version %s of seq_id %d is not served", version_id, seq_id));
  }
  std::shared_ptr<const ServedVersion> version = entry->version;
  if (--entry->num_reads == 0) {
    std::erase_if(entries_, [&](const Entry& one) { return one.version_id == version_id; });
  }
  return version;
}

void ServedVersions::Drop(const std::string& version_id) {
  absl::MutexLock lock(&mu_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.version_id == version_id; });
}

void ServedVersions::Clear() {
  absl::MutexLock lock(&mu_);
  entries_.clear();
}

}  // namespace lathe::worker
