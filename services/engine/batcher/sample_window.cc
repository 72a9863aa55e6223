#include "services/engine/batcher/sample_window.h"

#include <algorithm>

namespace lathe::engine {

void SampleWindow::SetRunning(int64_t max_running_samples, int64_t num_replicas) {
  limit_ = max_running_samples <= 0
               ? default_limit_
               : max_running_samples + std::max<int64_t>(1, max_running_samples / 4);
  most_of_request_ = std::max<int64_t>(1, limit_ / std::max<int64_t>(1, num_replicas));
  for (auto& [id, entry] : requests_) Count(entry);
}

bool SampleWindow::HasRoomFor(const std::string& tenant) const {
  if (num_sequences_ < limit_) return true;
  const auto found = tenants_.find(tenant);
  const bool is_new = found == tenants_.end();
  const int64_t num_tenants = static_cast<int64_t>(tenants_.size()) + (is_new ? 1 : 0);
  return (is_new ? 0 : found->second.num_sequences) < limit_ / num_tenants;
}

// As many tenants as the limit have a share of one sequence, and another would have none.
bool SampleWindow::IsFull() const {
  return num_sequences_ >= limit_ && static_cast<int64_t>(tenants_.size()) >= limit_;
}

void SampleWindow::Add(const std::string& request_id, const std::string& tenant,
                       int64_t num_sequences) {
  const auto [it, is_new] =
      requests_.try_emplace(request_id, Entry{.tenant = tenant, .num_sequences = num_sequences});
  if (!is_new) return;
  ++tenants_[tenant].num_requests;
  Count(it->second);
}

void SampleWindow::Count(Entry& entry) {
  const int64_t counted = std::min(entry.num_sequences - entry.num_ended, most_of_request_);
  tenants_.at(entry.tenant).num_sequences += counted - entry.counted;
  num_sequences_ += counted - entry.counted;
  entry.counted = counted;
}

void SampleWindow::SetEnded(const std::string& request_id, int64_t num_ended) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Entry& entry = it->second;
  // An earlier report may arrive after a later one.
  entry.num_ended = std::clamp(num_ended, entry.num_ended, entry.num_sequences);
  Count(entry);
}

void SampleWindow::Remove(const std::string& request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Entry& entry = it->second;
  entry.num_ended = entry.num_sequences;
  Count(entry);
  if (--tenants_.at(entry.tenant).num_requests == 0) tenants_.erase(entry.tenant);
  requests_.erase(it);
}

void SampleWindow::Clear() {
  requests_.clear();
  tenants_.clear();
  num_sequences_ = 0;
}

}  // namespace lathe::engine
