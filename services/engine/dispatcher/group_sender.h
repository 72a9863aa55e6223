// The thread that sends the commands of one worker group.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Runs tasks one after another, in the order in which they were pushed. The dispatcher has one for
// each group with an attached worker. A task may wait for a read of a request's body. It then
// delays neither the core nor the commands of other groups.
class GroupSender {
 public:
  using Task = std::function<void()>;

  // Bound on the tasks that wait. A task has the ids of bodies, and the bodies that were in memory.
  // The core's bounds on the work of one worker bound these: two batches, a few large requests, the
  // sequences in flight, and the gradients of models that are being rebuilt. The number is far
  // above them; it limits commands without a request.
  static constexpr size_t kMaxTasks = size_t{1} << 18;

  explicit GroupSender(size_t max_tasks = kMaxTasks);
  // Waits for the task that is running. Drops the others.
  ~GroupSender();

  // Returns false, and drops the task, if too many wait or after Close.
  bool TryPush(Task task) { return tasks_.TryPush(std::move(task)); }
  // Drops the tasks that wait, and ends the thread after the one that is running.
  void Close() { tasks_.Close(); }
  // Returns true once the thread runs nothing more. Destruction then waits for nothing.
  bool has_ended() const { return has_ended_; }

 private:
  void Run();

  BoundedQueue<Task> tasks_;
  std::atomic<bool> has_ended_ = false;
  NamedThread thread_;
};

}  // namespace lathe::engine
