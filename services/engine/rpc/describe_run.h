// A training run with its newest checkpoints.
#pragma once

#include "absl/status/statusor.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/auth/key_ring.h"
#include "services/engine/runtime/runtime.h"

namespace lathe::engine {

// `row` is the caller's.
absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row);

// A page of them.
absl::StatusOr<v1::ListRunsResponse> DescribeRuns(Runtime& runtime, const Caller& caller,
                                                  const Page<ModelRow>& page);

}  // namespace lathe::engine
