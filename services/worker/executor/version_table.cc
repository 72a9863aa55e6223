#include "services/worker/executor/version_table.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::worker {

void VersionTable::Put(const std::string& version_id, SamplerVersion version) {
  versions_.insert_or_assign(version_id, std::move(version));
}

void VersionTable::PutFailure(const std::string& version_id, absl::Status status) {
  versions_.insert_or_assign(version_id, std::move(status));
}

void VersionTable::Drop(const std::string& version_id) { versions_.erase(version_id); }

bool VersionTable::Has(const std::string& version_id) const {
  const auto it = versions_.find(version_id);
  return it != versions_.end() && it->second.ok();
}

absl::StatusOr<SamplerVersion> VersionTable::Find(const std::string& version_id) const {
  if (version_id.empty()) return SamplerVersion();
  const auto it = versions_.find(version_id);
  if (it != versions_.end()) return it->second;
  return absl::NotFoundError(
      absl::StrCat("sampler version ", version_id, " is not on this worker"));
}

int64_t VersionTable::NumBytes() const {
  std::set<const AdapterWeights*> seen;
  int64_t bytes = 0;
  for (const auto& [version_id, version] : versions_) {
    if (!version.ok() || version->weights == nullptr) continue;
    if (seen.insert(version->weights.get()).second) bytes += version->weights->num_bytes();
  }
  return bytes;
}

std::vector<std::string> VersionTable::Ids() const {
  std::vector<std::string> ids;
  for (const auto& [version_id, version] : versions_) {
    if (version.ok()) ids.push_back(version_id);
  }
  return ids;
}

}  // namespace lathe::worker
