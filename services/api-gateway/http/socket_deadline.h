// How long a connection may take for what it is doing.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

namespace lathe::gateway {

namespace asio = boost::asio;

// Closes a socket whose time is over, which ends its operations. A deadline that moves away, as it
// does several times a request, costs no timer: the one that runs looks again when it fires. All on
// the socket's strand.
class SocketDeadline {
 public:
  // `socket` must outlive it.
  explicit SocketDeadline(asio::ip::tcp::socket& socket);
  ~SocketDeadline();
  SocketDeadline(const SocketDeadline&) = delete;
  SocketDeadline& operator=(const SocketDeadline&) = delete;

  // From now.
  void Set(std::chrono::steady_clock::duration timeout);
  // No deadline until the next Set.
  void Clear();

 private:
  // Shared with the wait in progress.
  struct State {
    asio::steady_timer timer;
    asio::ip::tcp::socket* socket;  // null: nobody is interested any more
    std::chrono::steady_clock::time_point deadline = kNever;
    bool is_waiting = false;
  };
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();

  static void Wait(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace lathe::gateway
