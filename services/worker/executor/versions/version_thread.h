// Reads and spills sampler versions on threads beside the executor's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/executor/versions/version_files.h"

namespace lathe::worker {

// Runs one job at a time, in order, on one thread. Reads from other processes, which may be slow or
// hang, run on kServedReads further threads. `on_done` is called on these threads and may block.
// Jobs of a generation older than the newest enqueued one are dropped. The destructor finishes the
// running jobs and drops the others. `files` must outlive it.
class VersionThread : public VersionJobs {
 public:
  static constexpr size_t kMaxQueuedJobs = 65536;
  static constexpr int kServedReads = 4;  // at the same time

  VersionThread(VersionFiles& files, std::function<void(VersionJobDone)> on_done);
  ~VersionThread() override;

  // Executor thread only.
  absl::Status Enqueue(VersionJob job) override;

 private:
  void Run(BoundedQueue<VersionJob>& queue);

  VersionFiles& files_;
  const std::function<void(VersionJobDone)> on_done_;
  BoundedQueue<VersionJob> queue_{kMaxQueuedJobs};
  BoundedQueue<VersionJob> served_queue_{kMaxQueuedJobs};
  std::atomic<int64_t> generation_ = 0;  // generation of the newest job
  std::atomic<bool> stopping_ = false;
  NamedThread thread_;
  std::vector<std::unique_ptr<NamedThread>> served_threads_;
};

}  // namespace lathe::worker
