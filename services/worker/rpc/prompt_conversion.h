// What a sample asks of its prompt, and what it is answered: lathe.v1 <-> ops.h.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/types.pb.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// target_prompt_logprobs of a prompt of `prompt_length` tokens. InvalidArgument: no tensor of
// integers, or not of prompt_length - 1 rows; the engine has said so before to whoever sent it.
absl::StatusOr<std::shared_ptr<const PromptTargets>> ReadTargets(const lathe::v1::Tensor& tensor,
                                                                 int64_t prompt_length);

// Float32, of the shape and layout of the targets.
lathe::v1::Tensor ToProto(const PromptTargetLogprobs& scored);

lathe::v1::PromptAltTokens ToProto(const PromptAltTokens& drawn);

lathe::v1::TopkLogprobs ToProto(const TopkLogprobs& top);

}  // namespace lathe::worker
