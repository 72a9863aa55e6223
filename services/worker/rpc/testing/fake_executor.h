// An executor that only records its commands, for tests of the stream.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/executor/executor_port.h"

namespace lathe::worker {

class FakeExecutor : public ExecutorPort {
 public:
  absl::Status Submit(Command command, std::string encoded) override {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError("the executor has been stopped");
    if (full_) return absl::ResourceExhaustedError("command queue holds 0 commands, limit is 0");
    commands_.push_back(std::move(command));
    encoded_.push_back(std::move(encoded));
    return absl::OkStatus();
  }

  void Reset(int64_t generation) override {
    absl::MutexLock lock(&mu_);
    commands_.clear();
    encoded_.clear();
    generation_ = generation;
  }

  ExecutorState State() const override {
    absl::MutexLock lock(&mu_);
    return state_;
  }

  void SetState(ExecutorState state) {
    absl::MutexLock lock(&mu_);
    state_ = std::move(state);
  }

  void Stop() {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }

  void SetFull(bool full) {
    absl::MutexLock lock(&mu_);
    full_ = full;
  }

  std::vector<Command> commands() const {
    absl::MutexLock lock(&mu_);
    return commands_;
  }

  // Commands as the other ranks get them, in the order of commands().
  std::vector<std::string> encoded() const {
    absl::MutexLock lock(&mu_);
    return encoded_;
  }

  int64_t generation() const {
    absl::MutexLock lock(&mu_);
    return generation_;
  }

  // Blocks until `count` commands have arrived since the last Reset.
  void AwaitCommands(size_t count) const {
    absl::MutexLock lock(&mu_);
    const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return commands_.size() >= count;
    };
    mu_.Await(absl::Condition(&enough));
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> encoded_ ABSL_GUARDED_BY(mu_);
  ExecutorState state_ ABSL_GUARDED_BY(mu_);
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::worker
