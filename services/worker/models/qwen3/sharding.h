// Sharding of a Qwen3 dense model along axis tp. Free of torch.
#pragma once

#include <absl/status/statusor.h>

#include "services/worker/spec/model_part.h"

namespace lathe::worker {

// Returns the part of rank `place`; with one rank, WholeModel. InvalidArgument names a field of
// `spec` that cannot be divided.
absl::StatusOr<ModelPart> ShardQwen3(const ModelSpec& spec, const TpPlace& place);

}  // namespace lathe::worker
