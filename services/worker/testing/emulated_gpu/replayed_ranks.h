// Ranks whose devices replay recorded passes behind the host, as GPUs replay CUDA graphs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "services/worker/collectives/flight_watch.h"
#include "services/worker/testing/emulated_gpu/queued_ranks.h"

namespace lathe::worker {

// Runs queued work in order on a thread of its own, as the stream of a GPU does.
class EmulatedStream {
 public:
  EmulatedStream() : thread_([this] { Run(); }) {}
  ~EmulatedStream() {
    Queue(nullptr);
    thread_.join();
  }

  void Queue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }

  // Returns the point behind all work that is queued now.
  std::shared_ptr<const DeviceEvent> Record() { return RecordEvent(); }

  // Blocks until all queued work has ended, as a read of results does.
  void Synchronize() { RecordEvent()->passed.WaitForNotification(); }

  // Returns true on the thread that stands for the device.
  bool IsOnDevice() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Event : DeviceEvent {
    absl::StatusOr<bool> IsPassed() const override { return passed.HasBeenNotified(); }
    absl::Notification passed;
  };

  std::shared_ptr<Event> RecordEvent() {
    auto event = std::make_shared<Event>();
    Queue([event] { event->passed.Notify(); });
    return event;
  }

  void Run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !queue_.empty(); });
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      if (work == nullptr) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

// A communicator of one rank with the shape of NCCL's: collectives that a replay runs on the device
// have no deadline, and a thread watches the replay.
class ReplayedCollectives : public QueuedCollectives {
 public:
  // `abort` releases the device when the watch has failed. All references must outlive this object.
  ReplayedCollectives(Collectives& inner, EmulatedStream& stream, std::function<void()> abort,
                      const CollectivesOptions& options, IssueOrder& order,
                      FlightRecorder& recorder)
      : QueuedCollectives(inner, inner.axis(), inner.rank(), order, recorder, options),
        stream_(stream),
        abort_(std::move(abort)),
        watch_(recorder),
        watcher_([this] { Watch(); }) {}
  ~ReplayedCollectives() override {
    watch_.Stop();
    watcher_.join();
  }

 private:
  absl::Status Run(const CollectiveOperation& operation) override {
    if (!stream_.IsOnDevice()) return QueuedCollectives::Run(operation);
    // On a GPU it is for ever. Here a test without a watch has to end.
    CollectiveOperation recorded = operation;
    recorded.timeout = kTestPatience;
    return QueuedCollectives::Run(recorded);
  }

  absl::Status RunReplay(const CollectiveOperation& operation,
                         const std::function<void()>& replay) override {
    const std::shared_ptr<const DeviceEvent> begin = stream_.Record();
    replay();
    watch_.Add(operation, begin, stream_.Record());
    return absl::OkStatus();
  }

  void Watch() {
    watch_.Run([] { return absl::OkStatus(); },
               [this](const CollectiveOperation& operation, const absl::Status& status) {
                 Fail(operation, status).IgnoreError();
                 abort_();
               });
  }

  EmulatedStream& stream_;
  const std::function<void()> abort_;
  FlightWatch watch_;
  std::thread watcher_;
};

}  // namespace lathe::worker
