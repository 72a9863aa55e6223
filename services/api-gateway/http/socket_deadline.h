// A deadline for the current operation of a connection.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

namespace lathe::gateway {

namespace asio = boost::asio;

// Closes a socket at its deadline, which ends the socket's operations. Postponing the deadline,
// which happens several times per request, starts no timer: the running timer checks the deadline
// when it fires. Used only on the socket's strand.
class SocketDeadline {
 public:
  // `socket` must outlive it.
  explicit SocketDeadline(asio::ip::tcp::socket& socket);
  ~SocketDeadline();
  SocketDeadline(const SocketDeadline&) = delete;
  SocketDeadline& operator=(const SocketDeadline&) = delete;

  // Sets the deadline to `timeout` from now.
  void Set(std::chrono::steady_clock::duration timeout);
  // Removes the deadline until the next Set.
  void Clear();

 private:
  // Shared with the timer's callback, which may run after the destructor.
  struct State {
    asio::steady_timer timer;
    asio::ip::tcp::socket* socket;  // null after the destructor
    std::chrono::steady_clock::time_point deadline = kNever;
    bool is_waiting = false;
  };
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();

  static void Wait(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace lathe::gateway
