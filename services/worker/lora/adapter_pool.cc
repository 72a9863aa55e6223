#include "services/worker/lora/adapter_pool.h"

#include <utility>

namespace lathe::worker {

void AdapterPool::Put(const std::string& model_id, std::shared_ptr<Adapter> adapter) {
  adapters_[model_id] = std::move(adapter);
}

void AdapterPool::Drop(const std::string& model_id) { adapters_.erase(model_id); }

std::shared_ptr<Adapter> AdapterPool::Find(const std::string& model_id) const {
  const auto it = adapters_.find(model_id);
  return it == adapters_.end() ? nullptr : it->second;
}

}  // namespace lathe::worker
