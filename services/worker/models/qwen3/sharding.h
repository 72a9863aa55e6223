// How the tensors of a Qwen3 dense model are cut along axis tp. Free of torch.
#pragma once

#include <absl/status/statusor.h>

#include "services/worker/models/model_part.h"

namespace lathe::worker {

// InvalidArgument naming a field of `spec` that cannot be cut so. Of one rank it is
// WholeModel.
absl::StatusOr<ModelPart> ShardQwen3(const ModelSpec& spec, const TpPlace& place);

}  // namespace lathe::worker
