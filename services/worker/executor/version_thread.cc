#include "services/worker/executor/version_thread.h"

#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include <c10/core/InferenceMode.h>

#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"

namespace lathe::worker {
namespace {

// Passes take every core, and one that is taken from them holds up the whole pass: beside them the
// thread gets about a tenth of a core, without them all of it. Of this thread only.
constexpr int kNiceness = 10;

}  // namespace

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
  errno = 0;
  if (nice(kNiceness) == -1 && errno != 0) {
    LogWarn("sampler versions are read as eagerly as passes run", {{"errno", errno}});
  }
  const c10::InferenceMode no_autograd;
  while (std::optional<VersionJob> job = queue_.Pop()) {
    if (stopping_) return;
    if (job->generation < generation_) continue;  // nobody waits for it
    on_done_(files_.Run(*job));
  }
}

}  // namespace lathe::worker
