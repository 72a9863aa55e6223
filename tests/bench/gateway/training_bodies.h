// Bodies that the benchmarks send: one large forward_backward in the SDK's two encodings.
#pragma once

#include <cstdint>
#include <string>

#include "protos/lathe/v1/types.pb.h"

namespace lathe::gateway {

// 256 sequences of 1,063 tokens (272 k in all) for importance_sampling: 9 MB of JSON.
struct TrainingShape {
  int64_t num_datums = 256;
  int64_t datum_tokens = 1063;
};

// Token ids, targets, logprobs and advantages come from a fixed seed. Both forms hold equal values.
std::string TrainingJson(const TrainingShape& shape);
// Returns a serialized tinker_public.ForwardBackwardRequest.
std::string TrainingProtobuf(const TrainingShape& shape);

// A worker's result for `num_logprobs` targets in rows of `datum_tokens`.
v1::ForwardBackwardResult LogprobsResult(int64_t num_logprobs, int64_t datum_tokens);

}  // namespace lathe::gateway
