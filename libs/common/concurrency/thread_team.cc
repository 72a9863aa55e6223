#include "libs/common/concurrency/thread_team.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;

// Two sections of a pass are some microseconds apart, two passes some hundred. Waking a thread
// takes up to a hundred.
constexpr std::chrono::microseconds kHelperLooks{1000};
constexpr std::chrono::microseconds kCallerLooks{100};

constexpr int kTasksBits = 32;
constexpr uint64_t kTasksMask = (uint64_t{1} << kTasksBits) - 1;

// True while this thread runs a task.
// Aligned as pointers are: mold 1.10 may lay out a program so that it does not load if all its
// thread-local data is aligned less.
alignas(void*) thread_local bool is_in_task = false;

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Checks `is_ready` several times between two reads of the clock. Returns true if it became true
// within `most`.
template <typename F>
bool LookFor(std::chrono::microseconds most, const F& is_ready) {
  const Clock::time_point end = Clock::now() + most;
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_ready()) return true;
      Relax();
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace

ThreadTeam::ThreadTeam(int64_t num_threads) {
  try {
    for (int64_t thread = 1; thread < num_threads; ++thread) {
      helpers_.emplace_back("compute-" + std::to_string(thread), [this, thread] { Help(thread); });
    }
  } catch (...) {  // no more threads: stop those that run, or their joins would hang
    Stop();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { Stop(); }

bool ThreadTeam::IsInTask() { return is_in_task; }

void ThreadTeam::Stop() {
  is_stopping_ = true;
  ++num_wakings_;
  num_wakings_.notify_all();
  helpers_.clear();
}

void ThreadTeam::RunErased(const Work& work) {
  if (is_in_task || helpers_.empty() || work.num_tasks < 2) {
    for (int64_t task = 0; task < work.num_tasks; ++task) work.call(work.f, task, /*thread=*/0);
    return;
  }
  f_.store(work.f, std::memory_order_relaxed);
  call_.store(work.call, std::memory_order_relaxed);
  num_tasks_.store(work.num_tasks, std::memory_order_relaxed);
  num_done_.store(0, std::memory_order_relaxed);
  const uint64_t serial = (ticket_.load(std::memory_order_relaxed) >> kTasksBits) + 1;
  ticket_ = serial << kTasksBits | static_cast<uint64_t>(work.num_tasks);
  WakeHelpers(work.num_tasks - 1);
  is_in_task = true;
  RunTasks(/*thread=*/0);
  is_in_task = false;
  WaitUntilDone(static_cast<uint32_t>(work.num_tasks));
  absl::MutexLock lock(&mu_);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool ThreadTeam::RunTasks(int64_t thread) {
  bool has_run = false;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & kTasksMask) != 0) {
    const Work work = {.f = f_.load(std::memory_order_relaxed),
                       .call = call_.load(std::memory_order_relaxed),
                       .num_tasks = num_tasks_.load(std::memory_order_relaxed)};
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    RunOne(work, work.num_tasks - static_cast<int64_t>(ticket & kTasksMask), thread);
    has_run = true;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return has_run;
}

void ThreadTeam::RunOne(const Work& work, int64_t task, int64_t thread) {
  try {
    work.call(work.f, task, thread);
  } catch (...) {
    absl::MutexLock lock(&mu_);
    error_ = std::current_exception();
  }
  ++num_done_;
  if (caller_sleeps_) num_done_.notify_one();
}

void ThreadTeam::WaitUntilDone(uint32_t num_tasks) {
  const auto is_done = [&] { return num_done_.load(std::memory_order_acquire) == num_tasks; };
  if (LookFor(kCallerLooks, is_done)) return;
  // A helper has lost its core during a task. A sleeping caller leaves it another core.
  caller_sleeps_ = true;
  for (uint32_t done = num_done_; done != num_tasks; done = num_done_) num_done_.wait(done);
  caller_sleeps_ = false;
}

void ThreadTeam::Help(int64_t thread) {
  is_in_task = true;
  while (!is_stopping_) {
    RunTasks(thread);
    if (!LookForTasks()) Sleep();
  }
}

bool ThreadTeam::LookForTasks() const {
  return LookFor(kHelperLooks, [this] {
    return (ticket_.load(std::memory_order_acquire) & kTasksMask) != 0 ||
           is_stopping_.load(std::memory_order_relaxed);
  });
}

void ThreadTeam::Sleep() {
  const uint32_t num_wakings = num_wakings_;
  ++num_asleep_;
  // A Run that offers tasks from here on counts this thread as asleep.
  if ((ticket_ & kTasksMask) == 0 && !is_stopping_) num_wakings_.wait(num_wakings);
  --num_asleep_;
}

void ThreadTeam::WakeHelpers(int64_t most) {
  const int64_t num_asleep = num_asleep_;
  if (num_asleep == 0) return;
  ++num_wakings_;
  for (int64_t i = 0; i < std::min(num_asleep, most); ++i) num_wakings_.notify_one();
}

}  // namespace lathe
