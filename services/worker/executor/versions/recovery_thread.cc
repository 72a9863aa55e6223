#include "services/worker/executor/versions/recovery_thread.h"

#include <optional>
#include <utility>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "libs/common/priority/background_priority.h"

namespace lathe::worker {

RecoveryThread::RecoveryThread(const RecoveryFiles& files,
                               std::function<void(RecoveryJobDone)> on_done)
    : files_(files), on_done_(std::move(on_done)), thread_("snapshots", [this] { Run(); }) {}

RecoveryThread::~RecoveryThread() {
  stopping_ = true;
  queue_.Close();
}

absl::Status RecoveryThread::Enqueue(RecoveryJob job) {
  if (queue_.TryPush(std::move(job))) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d snapshots and versions wait to be written, limit is %d", queue_.size(), kMaxQueuedJobs));
}

void RecoveryThread::Run() {
  YieldProcessor("snapshots");
  YieldDisk("snapshots");
  const c10::InferenceMode no_autograd;
  while (std::optional<RecoveryJob> job = queue_.Pop()) {
    if (stopping_) return;
    on_done_(files_.Run(*std::move(job)));
  }
}

}  // namespace lathe::worker
