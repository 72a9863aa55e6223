// The numbers of a durable result, as points of its run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/engine/series/points.h"
#include "services/engine/store/operation_kind.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Facts about a finished request that its result does not have.
struct FinishedRequest {
  std::string run_id;
  std::string tenant_id;
  OperationKind kind = OperationKind::kForwardBackward;
  int64_t tokens = 0;
  std::optional<double> learning_rate = std::nullopt;  // of an optim_step
  int64_t done_at = 0;  // nanoseconds since the Unix epoch, as the next three
  // 0: not known, because the engine has started since.
  int64_t accepted_at = 0;
  int64_t dispatched_at = 0;
  int64_t executed_at = 0;
};

// Returns the learning rate of an accepted optim_step; nullopt for other requests, and for one that
// was refused.
std::optional<double> LearningRateOf(const RequestRow& row);

// Returns the points of a success: every metric of the result, and what the engine knows of the
// request. `result` is an encoded lathe.v1.OperationResult; only the parts with numbers are parsed.
// Returns null for operations that have none.
//   forward_backward   its metrics, forward_backward/{tokens,datums,queue_seconds,execute_seconds}
//   forward            the same below forward/
//   optim_step         its metrics, optim_step/{learning_rate,queue_seconds,execute_seconds}
//   sample             counts: sample/sequences, sample/tokens
//   saves              counts: {operation}/count
PointEntryPtr PointsOfResult(const FinishedRequest& request, std::string_view result);

}  // namespace lathe::engine
