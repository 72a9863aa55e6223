#include "services/api-gateway/routes/long_poll.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace lathe::gateway {

void LongPoll::PostUpdate(const WatchUpdate& update) {
  asio::post(timer_.get_executor(), [self = shared_from_this(), update] {
    self->queue_state_ = update.queue_state;
    self->queue_state_reason_ = update.queue_state_reason;
    const bool is_final = update.is_done || !update.error.ok();
    if (is_final) {
      self->is_settled_ = true;
      self->result_ = update.result;
    }
    if (is_final || self->wants_update_) self->timer_.cancel();
  });
}

void LongPoll::PostEnd() {
  asio::post(timer_.get_executor(), [self = shared_from_this()] { self->End(); });
}

void LongPoll::End() {
  is_over_ = true;
  timer_.cancel();
  if (on_end_) on_end_();
}

void LongPoll::OnEnd(std::function<void()> callback) {
  on_end_ = std::move(callback);
  if (is_over_) on_end_();
}

asio::awaitable<void> LongPoll::WaitFor(std::chrono::steady_clock::time_point deadline) {
  boost::system::error_code ignored;
  timer_.expires_at(deadline);
  co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> LongPoll::Sleep(std::chrono::steady_clock::time_point deadline) {
  if (!is_settled_ && !is_over_) co_await WaitFor(deadline);
}

asio::awaitable<void> LongPoll::AwaitUpdate(std::chrono::steady_clock::time_point deadline) {
  wants_update_ = true;
  co_await Sleep(deadline);
  wants_update_ = false;
}

asio::awaitable<void> LongPoll::Pause(std::chrono::steady_clock::duration pause,
                                      std::chrono::steady_clock::time_point deadline) {
  if (is_over_) co_return;
  co_await WaitFor(std::min(deadline, std::chrono::steady_clock::now() + pause));
}

}  // namespace lathe::gateway
