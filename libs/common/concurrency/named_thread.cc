#include "libs/common/concurrency/named_thread.h"

#include <pthread.h>
#include <signal.h>
#include <chrono>
#include <utility>

#include "absl/time/time.h"
#include "libs/common/concurrency/thread_stacks.h"

namespace lathe {

namespace {

// A new thread inherits its creator's signal mask, so the creator blocks all signals but
// StackSignal() meanwhile.
std::thread StartWithSignalsBlocked(std::function<void()> body) {
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  sigdelset(&all, StackSignal());
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return thread;
}

}  // namespace

NamedThread::NamedThread(std::string name, std::function<void()> body)
    : thread_(StartWithSignalsBlocked([name = name.substr(0, 15), body = std::move(body)] {
        pthread_setname_np(pthread_self(), name.c_str());
        body();
      })) {}

NamedThread::~NamedThread() { Join(); }

void NamedThread::Join() {
  if (thread_.joinable()) thread_.join();
}

PeriodicTask::PeriodicTask(std::string name, absl::Duration period, std::function<void()> task)
    : thread_(std::move(name), [this, period, task = std::move(task)] {
        while (!IsStoppedWithin(period)) task();
      }) {}

PeriodicTask::~PeriodicTask() {
  const std::lock_guard lock(mu_);
  is_stopped_ = true;
  stop_.notify_one();
}

bool PeriodicTask::IsStoppedWithin(absl::Duration period) {
  std::unique_lock lock(mu_);
  return stop_.wait_for(lock, absl::ToChronoNanoseconds(period), [this] { return is_stopped_; });
}

}  // namespace lathe
