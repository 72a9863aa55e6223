// Conversion of prompt-scoring requests and results: lathe.v1 <-> ops/.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/worker/ops/sampling.h"

namespace lathe::worker {

// Reads the target_prompt_logprobs of a prompt of `prompt_length` tokens. InvalidArgument: not an
// int64 tensor of prompt_length - 1 rows. The engine has already checked this for the client.
absl::StatusOr<std::shared_ptr<const PromptTargets>> ReadTargets(const lathe::v1::Tensor& tensor,
                                                                 int64_t prompt_length);

// Float32, with the shape and layout of the targets.
lathe::v1::Tensor ToProto(const PromptTargetLogprobs& scored);

lathe::v1::PromptAltTokens ToProto(const PromptAltTokens& drawn);

lathe::v1::TopkLogprobs ToProto(const TopkLogprobs& top);

}  // namespace lathe::worker
