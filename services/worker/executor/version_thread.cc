#include "services/worker/executor/version_thread.h"

#include <optional>
#include <utility>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "services/worker/executor/background_priority.h"

namespace lathe::worker {

VersionThread::VersionThread(VersionFiles& files, std::function<void(VersionJobDone)> on_done)
    : files_(files), on_done_(std::move(on_done)), thread_("versions", [this] { Run(); }) {}

VersionThread::~VersionThread() {
  stopping_ = true;
  queue_.Close();
}

absl::Status VersionThread::Enqueue(VersionJob job) {
  generation_ = job.generation;
  if (queue_.TryPush(std::move(job))) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d sampler versions wait to be read, limit is %d", queue_.size(), kMaxQueuedJobs));
}

void VersionThread::Run() {
  YieldProcessor("versions");
  const c10::InferenceMode no_autograd;
  while (std::optional<VersionJob> job = queue_.Pop()) {
    if (stopping_) return;
    if (job->generation < generation_) continue;  // nobody waits for it
    on_done_(files_.Run(*job));
  }
}

}  // namespace lathe::worker
