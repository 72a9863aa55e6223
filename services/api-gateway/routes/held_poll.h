// A poll that waits: sleeps on its connection's strand until there is news.
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

// Held by shared_ptr, because news may arrive after the poll was answered.
class HeldPoll : public std::enable_shared_from_this<HeldPoll> {
 public:
  explicit HeldPoll(asio::any_io_executor executor) : timer_(std::move(executor)) {}

  // Any thread.
  void PostUpdate(const WatchUpdate& update);
  void PostEnd();

  // The rest on the executor only.
  // There is no use in waiting longer: the client has left or the gateway drains.
  void End();
  // Called by End, at once if that was; no more than one such callback.
  void OnEnd(std::function<void()> callback);
  // Until the request is settled, End, or the deadline.
  asio::awaitable<void> Sleep(std::chrono::steady_clock::time_point deadline);
  // Until any update, End, or the deadline.
  asio::awaitable<void> AwaitNews(std::chrono::steady_clock::time_point deadline);
  // For `pause`, but not beyond End or the deadline.
  asio::awaitable<void> Pause(std::chrono::steady_clock::duration pause,
                              std::chrono::steady_clock::time_point deadline);
  void NoteQueue(v1::QueueState state, std::string reason) {
    queue_state_ = state;
    queue_state_reason_ = std::move(reason);
  }
  // Forgets that the request was settled.
  void Rearm() {
    is_settled_ = false;
    result_ = nullptr;
  }

  // Done, or it cannot be watched: the engine can say more now.
  bool is_settled() const { return is_settled_; }
  bool is_over() const { return is_over_; }
  // Came with the news. Null: it must be fetched.
  const std::shared_ptr<const v1::OperationResult>& result() const { return result_; }
  v1::QueueState queue_state() const { return queue_state_; }
  const std::string& queue_state_reason() const { return queue_state_reason_; }

 private:
  asio::awaitable<void> WaitFor(std::chrono::steady_clock::time_point deadline);

  asio::steady_timer timer_;
  bool wants_news_ = false;
  bool is_settled_ = false;
  bool is_over_ = false;
  std::function<void()> on_end_;
  std::shared_ptr<const v1::OperationResult> result_;
  v1::QueueState queue_state_ = v1::QUEUE_STATE_UNSPECIFIED;
  std::string queue_state_reason_;
};

}  // namespace lathe::gateway
