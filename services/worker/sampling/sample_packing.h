// Serialization of sampling results for the other ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/ops/reports.h"
#include "services/worker/sampling/sampling_engine.h"

namespace lathe::worker {

// Results of one rank's passes.
struct SampleUpdates {
  std::vector<FinishedSample> finished;
  std::vector<SampledToken> streamed;

  bool empty() const { return finished.empty() && streamed.empty(); }
};

// Serializes `updates`. The `targets` of target_prompt_logprobs are left out: every rank has the
// request.
std::string Pack(const SampleUpdates& updates);

// Parses the bytes that Pack made. Internal error if they are damaged.
absl::StatusOr<SampleUpdates> UnpackSampleUpdates(std::string_view bytes);

}  // namespace lathe::worker
