// Sampler versions this process holds: immutable compute copies of adapters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/lora/adapter_weights.h"

namespace lathe::worker {

struct SamplerVersion {
  std::shared_ptr<const AdapterWeights> weights;  // nullptr: the base model
  // Inflight: seq_id of the publication that the weights come from. 0: they never change.
  int64_t inflight_seq = 0;
};

// Executor thread only. Samples that run keep the weights of a dropped version alive.
class VersionTable {
 public:
  // Replaces what the id had.
  void Put(const std::string& version_id, SamplerVersion version);
  // Remembers why a version could not be loaded, for the samples that come for it.
  void PutFailure(const std::string& version_id, absl::Status status);
  void Drop(const std::string& version_id);

  bool Has(const std::string& version_id) const;
  // The base model for the empty id. The load's error if it failed, else NotFound.
  absl::StatusOr<SamplerVersion> Find(const std::string& version_id) const;

  std::vector<std::string> Ids() const;  // loaded ones, ascending
  int64_t NumBytes() const;              // of all weights, those of two versions once

 private:
  std::map<std::string, absl::StatusOr<SamplerVersion>> versions_;
};

}  // namespace lathe::worker
