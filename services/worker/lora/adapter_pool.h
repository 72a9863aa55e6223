// All trainable adapters of one worker, by model id.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// Only the executor thread uses it. Sorted by model id, so that reports have a stable order.
class AdapterPool {
 public:
  // Adds `adapter` or replaces the previous adapter of `model_id`.
  void Put(const std::string& model_id, std::shared_ptr<Adapter> adapter);
  void Drop(const std::string& model_id);
  // Returns nullptr if there is no such model. Shared, because a pass may outlive the model's
  // removal.
  std::shared_ptr<Adapter> Find(const std::string& model_id) const;
  const std::map<std::string, std::shared_ptr<Adapter>>& adapters() const { return adapters_; }

 private:
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
};

}  // namespace lathe::worker
