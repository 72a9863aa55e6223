// A team of threads that shares many short tasks with one caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {

// One thread calls Run and shares the tasks with its helpers. The caller and the helpers take tasks
// one by one from a counter. The caller waits for tasks that a helper has taken, but never for a
// helper that sleeps or has lost its core.
//
// A helper that finds no task spins for a moment, then sleeps.
class ThreadTeam {
 public:
  // Starts num_threads - 1 helpers. Throws std::system_error when the system has no threads for
  // them.
  explicit ThreadTeam(int64_t num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Returns true inside a task of any team, where Run uses this thread only.
  static bool IsInTask();

  // Number of threads: the caller and its helpers.
  int64_t num_threads() const { return static_cast<int64_t>(helpers_.size()) + 1; }

  // Calls run(task, thread) once for each task in [0, num_tasks), in any order. Returns when all
  // are done. `thread` is in [0, num_threads()); the caller's is 0. No two tasks have the same
  // `thread` at one time. num_tasks < 2^32. If a task throws, Run throws that exception once no
  // task is running. Inside a task of any team, Run calls the tasks one after another as thread 0.
  template <typename F>
  void Run(int64_t num_tasks, const F& run) {
    RunErased({.f = &run,
               .call = [](const void* f, int64_t task,
                          int64_t thread) { (*static_cast<const F*>(f))(task, thread); },
               .num_tasks = num_tasks});
  }

  // Number of helpers that sleep until the next Run.
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
  // Takes and runs tasks until none is left. Returns true if it ran any.
  bool RunTasks(int64_t thread);
  void RunOne(const Work& work, int64_t task, int64_t thread);
  void WaitUntilDone(uint32_t num_tasks);
  void Help(int64_t thread);
  // Spins until there may be tasks, then returns true. Returns false after a time limit.
  bool LookForTasks() const;
  void Sleep();
  void WakeHelpers(int64_t most);

  // The current work. Helpers may read it while the next Run writes it. A helper uses what it read
  // only if it then takes a task, and the ticket proves that no other Run came between.
  std::atomic<const void*> f_ = nullptr;
  std::atomic<Call> call_ = nullptr;
  std::atomic<int64_t> num_tasks_ = 0;
  // Serial number of the Run in the high bits, and the number of its untaken tasks in the low bits.
  // All threads write it, so it has a cache line of its own.
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
