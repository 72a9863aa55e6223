// Threads for calls that read the store.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Runs listings, searches and other reads, which may wait for the database. gRPC's threads, which
// also receive the heartbeats of workers, never do. Tenants take turns, and no tenant has more than
// half of the threads. Thread-safe.
class ReadThreads {
 public:
  struct Options {
    // Number of threads, and so of reads at the same time.
    int num_threads = 4;
    // Largest number of reads of one tenant that wait.
    size_t max_waiting = 128;
    // True: reads have a low CPU priority. For reads that take much and lock nothing that others
    // need for long: no writes.
    bool is_background = false;
    // True: the threads copy checkpoints, which may take an object store minutes.
    bool makes_copies = false;
  };

  explicit ReadThreads(const Options& options);
  ReadThreads() : ReadThreads(Options()) {}
  // Runs all accepted work, then ends the threads.
  ~ReadThreads();

  // Runs `read`, then `answer`, if there is one. `answer` always has normal priority. What takes
  // locks of gRPC or of the core belongs there. Returns ResourceExhausted ("too_many_reads") at
  // once if too many reads of this tenant wait.
  absl::Status TryRun(const std::string& tenant_id, std::function<void()> read,
                      std::function<void()> answer = nullptr);

 private:
  struct Work {
    std::function<void()> read;
    std::function<void()> answer;
  };
  struct Tenant {
    std::deque<Work> waiting;
    int num_running = 0;
    bool has_turn = false;  // true if it is in turns_
  };

  void Run();
  void RunAnswers();
  void GiveTurnLocked(const std::string& tenant_id, Tenant& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Work TakeLocked(std::string& tenant_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(const std::string& tenant_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !turns_.empty();
  }

  const int max_running_;
  const size_t max_waiting_;
  const bool is_background_;
  absl::Mutex mu_;
  std::unordered_map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mu_);  // with work, by id
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);  // tenants that may start a read
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  BoundedQueue<std::function<void()>> answers_;
  std::unique_ptr<NamedThread> answer_thread_;  // of background reads
  std::vector<NamedThread> threads_;
};

}  // namespace lathe::engine
