#include "services/engine/rpc/describe_run.h"

#include "libs/common/status_macros.h"
#include "services/engine/rpc/row_convert.h"

namespace lathe::engine {
namespace {

// Enough to find the newest of each kind among rolling checkpoints.
constexpr int64_t kRecentCheckpoints = 100;

}  // namespace

absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row) {
  v1::Run run = ToProto(row, caller.tenant_name);
  ASSIGN_OR_RETURN(
      const Page<CheckpointRow> recent,
      runtime.store().ListCheckpoints(caller.tenant_id, row.model_id, runtime.NowNanos(),
                                      /*with_external=*/false, kRecentCheckpoints, 0));
  for (const CheckpointRow& checkpoint : recent.rows) {
    const CheckpointKind kind = checkpoint.kind;
    if (kind == CheckpointKind::kTraining && !run.has_last_checkpoint()) {
      *run.mutable_last_checkpoint() = ToProto(checkpoint);
    } else if (kind == CheckpointKind::kSampler && !run.has_last_sampler_checkpoint()) {
      *run.mutable_last_sampler_checkpoint() = ToProto(checkpoint);
    }
  }
  return run;
}

absl::StatusOr<v1::ListRunsResponse> DescribeRuns(Runtime& runtime, const Caller& caller,
                                                  const Page<ModelRow>& page) {
  v1::ListRunsResponse response;
  for (const ModelRow& row : page.rows) {
    ASSIGN_OR_RETURN(*response.add_runs(), DescribeRun(runtime, caller, row));
  }
  response.set_total_count(page.total_count);
  return response;
}

}  // namespace lathe::engine
