#include "services/engine/rpc/describe_run.h"

#include "libs/common/status_macros.h"
#include "services/engine/rpc/row_convert.h"

namespace lathe::engine {
namespace {

// Rows per read. One read mostly suffices to find the newest checkpoint of each kind.
constexpr int64_t kCheckpointsPage = 100;

// Keeps the first checkpoint of each kind. Rows come newest first.
void NoteNewest(const CheckpointRow& checkpoint, const std::filesystem::path& root, v1::Run& run) {
  if (checkpoint.kind == CheckpointKind::kTraining && !run.has_last_checkpoint()) {
    *run.mutable_last_checkpoint() = ToProto(checkpoint, root);
  } else if (checkpoint.kind == CheckpointKind::kSampler && !run.has_last_sampler_checkpoint()) {
    *run.mutable_last_sampler_checkpoint() = ToProto(checkpoint, root);
  }
}

}  // namespace

absl::StatusOr<v1::Run> DescribeRun(Runtime& runtime, const Caller& caller, const ModelRow& row) {
  v1::Run run = ToProto(row, caller.tenant_name);
  const int64_t now = runtime.NowNanos();
  bool more = true;
  for (int64_t offset = 0; more; offset += kCheckpointsPage) {
    ASSIGN_OR_RETURN(
        const Page<CheckpointRow> page,
        runtime.store().ListCheckpoints(caller.tenant_id, row.model_id, now,
                                        /*with_external=*/false, kCheckpointsPage, offset));
    for (const CheckpointRow& checkpoint : page.rows) {
      NoteNewest(checkpoint, runtime.checkpoints_dir(), run);
    }
    const bool has_both = run.has_last_checkpoint() && run.has_last_sampler_checkpoint();
    more = !has_both && offset + kCheckpointsPage < page.total_count;
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
