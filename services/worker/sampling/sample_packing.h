// What became of samples, as bytes for the other ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/ops.h"
#include "services/worker/sampling/sampling_engine.h"

namespace lathe::worker {

// What one rank's passes led to.
struct SampleNews {
  std::vector<FinishedSample> finished;
  std::vector<SampledToken> streamed;

  bool empty() const { return finished.empty() && streamed.empty(); }
};

// Of target_prompt_logprobs without `targets`, which every rank knows from the request.
std::string Pack(const SampleNews& news);

// Internal: the bytes are damaged.
absl::StatusOr<SampleNews> UnpackSampleNews(std::string_view bytes);

}  // namespace lathe::worker
