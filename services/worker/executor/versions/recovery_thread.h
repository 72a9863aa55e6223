// Writes snapshots and sampler versions on a thread beside the executor's.
#pragma once

#include <atomic>
#include <functional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/executor/versions/recovery_files.h"

namespace lathe::worker {

// Runs one job at a time, in order, on one thread. `on_done` is called there and may block. The
// destructor finishes the running job and drops the others. `files` must outlive it.
class RecoveryThread : public RecoveryJobs {
 public:
  static constexpr size_t kMaxQueuedJobs = 4096;

  RecoveryThread(const RecoveryFiles& files, std::function<void(RecoveryJobDone)> on_done);
  ~RecoveryThread() override;

  absl::Status Enqueue(RecoveryJob job) override;

 private:
  void Run();

  const RecoveryFiles& files_;
  const std::function<void(RecoveryJobDone)> on_done_;
  BoundedQueue<RecoveryJob> queue_{kMaxQueuedJobs};
  std::atomic<bool> stopping_ = false;
  NamedThread thread_;
};

}  // namespace lathe::worker
