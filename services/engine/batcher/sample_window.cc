#include "services/engine/batcher/sample_window.h"

#include <algorithm>

namespace lathe::engine {

void SampleWindow::SetRunning(int64_t max_running_samples) {
  limit_ = max_running_samples <= 0
               ? default_limit_
               : max_running_samples + std::max<int64_t>(1, max_running_samples / 4);
}

bool SampleWindow::HasRoomFor(const std::string& tenant) const {
  if (num_sequences_ < limit_) return true;
  const auto found = tenants_.find(tenant);
  const bool is_new = found == tenants_.end();
  const int64_t num_tenants = static_cast<int64_t>(tenants_.size()) + (is_new ? 1 : 0);
  return (is_new ? 0 : found->second.num_sequences) < limit_ / num_tenants;
}

// More tenants than the limit share nothing.
bool SampleWindow::IsFull() const {
  return num_sequences_ >= limit_ && static_cast<int64_t>(tenants_.size()) > limit_;
}

void SampleWindow::Add(const std::string& request_id, const std::string& tenant,
                       int64_t num_sequences) {
  const Entry entry{.tenant = tenant, .num_sequences = num_sequences};
  if (!requests_.try_emplace(request_id, entry).second) return;
  ++tenants_[tenant].num_requests;
  tenants_[tenant].num_sequences += num_sequences;
  num_sequences_ += num_sequences;
}

void SampleWindow::TakeOff(const std::string& tenant, int64_t num_sequences) {
  tenants_.at(tenant).num_sequences -= num_sequences;
  num_sequences_ -= num_sequences;
}

void SampleWindow::SetEnded(const std::string& request_id, int64_t num_ended) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  Entry& entry = it->second;
  // An earlier report may arrive after a later one.
  const int64_t ended = std::clamp(num_ended, entry.num_ended, entry.num_sequences);
  TakeOff(entry.tenant, ended - entry.num_ended);
  entry.num_ended = ended;
}

void SampleWindow::Remove(const std::string& request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  const Entry entry = it->second;
  requests_.erase(it);
  TakeOff(entry.tenant, entry.num_sequences - entry.num_ended);
  if (--tenants_.at(entry.tenant).num_requests == 0) tenants_.erase(entry.tenant);
}

void SampleWindow::Clear() {
  requests_.clear();
  tenants_.clear();
  num_sequences_ = 0;
}

}  // namespace lathe::engine
