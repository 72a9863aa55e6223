#include "services/engine/batcher/train_window.h"

namespace lathe::engine {

bool TrainWindow::HasRoomFor(int64_t tokens) const {
  return tokens_ + tokens <= kMaxBatches * batch_tokens_;
}

bool TrainWindow::HasRoomForLargeOf(const std::string& tenant) const {
  const auto it = large_of_tenant_.find(tenant);
  return it == large_of_tenant_.end() || it->second < kMaxLargeOfTenant;
}

void TrainWindow::Add(const std::string& request_id, const std::string& tenant, int64_t tokens) {
  if (!requests_.try_emplace(request_id, Entry{tenant, tokens}).second) return;
  if (!IsLarge(tokens)) {
    tokens_ += tokens;
    return;
  }
  ++num_large_;
  ++large_of_tenant_[tenant];
}

void TrainWindow::Remove(const std::string& request_id) {
  const auto it = requests_.find(request_id);
  if (it == requests_.end()) return;
  const Entry entry = it->second;
  requests_.erase(it);
  if (!IsLarge(entry.tokens)) {
    tokens_ -= entry.tokens;
    return;
  }
  --num_large_;
  if (--large_of_tenant_[entry.tenant] == 0) large_of_tenant_.erase(entry.tenant);
}

void TrainWindow::Clear() {
  requests_.clear();
  large_of_tenant_.clear();
  num_large_ = 0;
  tokens_ = 0;
}

}  // namespace lathe::engine
