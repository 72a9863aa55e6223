// All trainable adapters of one worker, by model id.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "services/worker/lora/adapter.h"

namespace lathe::worker {

// Used by the executor thread only. Ordered, so that reports list models in a stable order.
class AdapterPool {
 public:
  // Puts `adapter` in place of whatever `model_id` had.
  void Put(const std::string& model_id, std::shared_ptr<Adapter> adapter);
  void Drop(const std::string& model_id);
  // nullptr: no such model here. Shared, because a pass may outlive the model's removal.
  std::shared_ptr<Adapter> Find(const std::string& model_id) const;
  const std::map<std::string, std::shared_ptr<Adapter>>& adapters() const { return adapters_; }

 private:
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
};

}  // namespace lathe::worker
