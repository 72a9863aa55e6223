// Threads that help one thread with many short pieces of work.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {

// One thread calls Run and shares the work with the helpers of its team. Tasks are taken one by one
// from a counter, by the caller too, which waits for tasks that somebody has taken, never for a
// helper that sleeps or has lost its core: who does not come costs nothing but the help.
//
// A helper that finds no task looks for the next ones for a moment, then sleeps.
class ThreadTeam {
 public:
  // Starts num_threads - 1 helpers; std::system_error when there are no threads for them.
  explicit ThreadTeam(int64_t num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // The caller and its helpers.
  int64_t num_threads() const { return static_cast<int64_t>(helpers_.size()) + 1; }

  // run(task, thread) for each task in [0, num_tasks), once and in any order; returns when all are
  // done. `thread` is in [0, num_threads()), and no two tasks have the same at one time; the
  // caller's is 0. num_tasks < 2^32. Throws what a task has thrown, when none runs any more. In a
  // task of any team, tasks run one after another as thread 0.
  template <typename F>
  void Run(int64_t num_tasks, const F& run) {
    RunErased({.f = &run,
               .call = [](const void* f, int64_t task,
                          int64_t thread) { (*static_cast<const F*>(f))(task, thread); },
               .num_tasks = num_tasks});
  }

  // Helpers that sleep until the next Run.
  int64_t num_asleep() const { return num_asleep_; }

 private:
  using Call = void (*)(const void* f, int64_t task, int64_t thread);
  struct Work {
    const void* f;
    Call call;
    int64_t num_tasks;
  };

  void Stop();
  void RunErased(const Work& work);
  // Takes and runs tasks until there are none; whether there were any.
  bool RunTasks(int64_t thread);
  void RunOne(const Work& work, int64_t task, int64_t thread);
  void WaitUntilDone(uint32_t num_tasks);
  void Help(int64_t thread);
  // Whether there may be tasks; false when it has looked for long enough.
  bool LookForTasks() const;
  void Sleep();
  void WakeHelpers(int64_t most);

  // What is to be done. Helpers may read it while the next Run writes it: what they have read
  // counts only if they take a task then, which the ticket tells.
  std::atomic<const void*> f_ = nullptr;
  std::atomic<Call> call_ = nullptr;
  std::atomic<int64_t> num_tasks_ = 0;
  // Serial number of the Run, and below it how many of its tasks nobody has taken yet. All threads
  // write it, so it has a cache line of its own.
  alignas(64) std::atomic<uint64_t> ticket_ = 0;
  alignas(64) std::atomic<uint32_t> num_done_ = 0;
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<uint32_t> num_wakings_ = 0;  // helpers sleep until it changes
  std::atomic<int64_t> num_asleep_ = 0;
  std::atomic<bool> is_stopping_ = false;
  absl::Mutex mu_;
  std::exception_ptr error_ ABSL_GUARDED_BY(mu_);
  std::vector<NamedThread> helpers_;
};

}  // namespace lathe
