#include "services/api-gateway/http/socket_deadline.h"

namespace lathe::gateway {

SocketDeadline::SocketDeadline(asio::ip::tcp::socket& socket)
    : state_(std::make_shared<State>(State{asio::steady_timer(socket.get_executor()), &socket})) {}

SocketDeadline::~SocketDeadline() {
  state_->socket = nullptr;
  state_->timer.cancel();
}

void SocketDeadline::Set(std::chrono::steady_clock::duration timeout) {
  state_->deadline = std::chrono::steady_clock::now() + timeout;
  if (!state_->is_waiting || state_->deadline < state_->timer.expiry()) Wait(state_);
}

void SocketDeadline::Clear() { state_->deadline = kNever; }

void SocketDeadline::Wait(const std::shared_ptr<State>& state) {
  state->is_waiting = true;
  state->timer.expires_at(state->deadline);
  state->timer.async_wait([state](boost::system::error_code error) {
    // The timer was restarted for an earlier deadline, or the SocketDeadline was destroyed.
    if (error || state->socket == nullptr) return;
    state->is_waiting = false;
    if (std::chrono::steady_clock::now() < state->deadline) {
      if (state->deadline != kNever) Wait(state);
      return;
    }
    boost::system::error_code ignored;
    state->socket->close(ignored);
  });
}

}  // namespace lathe::gateway
