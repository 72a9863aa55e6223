#include "services/worker/executor/versions/version_thread.h"

#include <optional>
#include <utility>
#include <variant>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "libs/common/priority/background_priority.h"

namespace lathe::worker {

VersionThread::VersionThread(VersionFiles& files, std::function<void(VersionJobDone)> on_done)
    : files_(files), on_done_(std::move(on_done)), thread_("versions", [this] { Run(queue_); }) {
  for (int i = 0; i < (files.reads_served() ? kServedReads : 0); ++i) {
    served_threads_.push_back(
        std::make_unique<NamedThread>("versions-served", [this] { Run(served_queue_); }));
  }
}

VersionThread::~VersionThread() {
  stopping_ = true;
  queue_.Close();
  served_queue_.Close();
}

absl::Status VersionThread::Enqueue(VersionJob job) {
  generation_ = job.generation;
  const bool is_served = files_.reads_served() && std::holds_alternative<ReadServed>(job.work);
  BoundedQueue<VersionJob>& queue = is_served ? served_queue_ : queue_;
  if (queue.TryPush(std::move(job))) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d sampler versions wait to be read, limit is %d", queue.size(), kMaxQueuedJobs));
}

void VersionThread::Run(BoundedQueue<VersionJob>& queue) {
  YieldProcessor("versions");
  const c10::InferenceMode no_autograd;
  while (std::optional<VersionJob> job = queue.Pop()) {
    if (stopping_) return;
    if (job->generation < generation_) continue;  // its result is not needed
    on_done_(files_.Run(*job));
  }
}

}  // namespace lathe::worker
