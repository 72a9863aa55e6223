// Reads sampler versions while the executor goes on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/executor/version_files.h"

namespace lathe::worker {

// One thread, one job at a time, in order, and a few threads for reads from other processes, which
// may be slow or hang; `on_done` is called there and may block. Jobs of an
// older generation than the newest that was enqueued are dropped. The destructor finishes the job
// that runs and drops the others. `files` must outlive it.
class VersionThread : public VersionJobs {
 public:
  static constexpr size_t kMaxQueuedJobs = 65536;
  static constexpr int kServedReads = 4;  // at a time

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
  std::atomic<int64_t> generation_ = 0;  // the newest
  std::atomic<bool> stopping_ = false;
  NamedThread thread_;
  std::vector<std::unique_ptr<NamedThread>> served_threads_;
};

}  // namespace lathe::worker
