// Sampler versions this process holds: immutable compute copies of adapters.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/lora/adapter_weights.h"

namespace lathe::worker {

// Executor thread only. Samples that run keep the weights of a dropped version alive.
class VersionTable {
 public:
  using Weights = std::shared_ptr<const AdapterWeights>;

  void Put(const std::string& version_id, Weights weights);
  // Remembers why a version could not be loaded, for the samples that come for it.
  void PutFailure(const std::string& version_id, absl::Status status);
  void Drop(const std::string& version_id);

  bool Has(const std::string& version_id) const;
  // nullptr for the empty id, the base model. The load's error if it failed, else NotFound.
  absl::StatusOr<Weights> Find(const std::string& version_id) const;

  std::vector<std::string> Ids() const;  // loaded ones, ascending

 private:
  std::map<std::string, absl::StatusOr<Weights>> versions_;
};

}  // namespace lathe::worker
