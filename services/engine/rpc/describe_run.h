// Descriptions of training runs with their newest checkpoints.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// Describes one run. `row` must belong to the caller's tenant.
absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row);

// Describes a page of runs.
absl::StatusOr<v1::ListRunsResponse> DescribeRuns(Runtime& runtime, const Caller& caller,
                                                  const Page<ModelRow>& page);

}  // namespace lathe::engine
