// A long poll, which sleeps on its connection's strand until an update arrives.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "services/api-gateway/engine_client/watch_client.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// Held by shared_ptr, because an update may arrive after the poll was answered.
class LongPoll : public std::enable_shared_from_this<LongPoll> {
 public:
  explicit LongPoll(const asio::any_io_executor& executor) : timer_(executor) {}

  // Both run on the executor. Any thread may call them.
  void PostUpdate(const WatchUpdate& update);
  void PostEnd();

  // The functions below must run on the executor.
  // Ends the poll: the client has left or the gateway drains.
  void End();
  // Sets the callback that End calls. Calls it at once if the poll is over. A poll has at most one
  // callback.
  void OnEnd(std::function<void()> callback);
  // Waits until the request is settled, the poll is over or the deadline passes.
  asio::awaitable<void> Sleep(std::chrono::steady_clock::time_point deadline);
  // Waits until any update arrives, the request is settled, the poll is over or the deadline
  // passes.
  asio::awaitable<void> AwaitUpdate(std::chrono::steady_clock::time_point deadline);
  // Waits for `pause`, but not beyond the end of the poll or the deadline.
  asio::awaitable<void> Pause(std::chrono::steady_clock::duration pause,
                              std::chrono::steady_clock::time_point deadline);
  // Records why the request waits.
  void RecordQueueState(v1::QueueState state, std::string reason) {
    queue_state_ = state;
    queue_state_reason_ = std::move(reason);
  }
  // Resets the settled state, before the poll waits again.
  void Rearm() {
    is_settled_ = false;
    result_ = nullptr;
  }

  // True if the request has ended or cannot be watched. The engine can then give a final answer.
  bool is_settled() const { return is_settled_; }
  // True after End.
  bool is_over() const { return is_over_; }
  // Result from the update. Null: it must be fetched.
  const std::shared_ptr<const v1::OperationResult>& result() const { return result_; }
  v1::QueueState queue_state() const { return queue_state_; }
  const std::string& queue_state_reason() const { return queue_state_reason_; }

 private:
  asio::awaitable<void> WaitFor(std::chrono::steady_clock::time_point deadline);

  asio::steady_timer timer_;
  bool wants_update_ = false;
  bool is_settled_ = false;
  bool is_over_ = false;
  std::function<void()> on_end_;
  std::shared_ptr<const v1::OperationResult> result_;
  v1::QueueState queue_state_ = v1::QUEUE_STATE_UNSPECIFIED;
  std::string queue_state_reason_;
};

}  // namespace lathe::gateway
