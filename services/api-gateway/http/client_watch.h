// Tells a handler that waits that its client has left.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

namespace lathe::gateway {

namespace asio = boost::asio;

// Belongs to one connection and its strand; reads nothing from the socket.
class ClientWatch {
 public:
  // `socket` must outlive it and be in non-blocking mode.
  explicit ClientWatch(asio::ip::tcp::socket& socket) : socket_(socket) {}
  ~ClientWatch() { Stop(); }

  // Calls `on_gone` once, on the connection's executor, if the client closes before Stop. A client
  // that sends its next request early is not watched any more.
  void Start(std::function<void()> on_gone);
  // No call after this.
  void Stop();

 private:
  using Callback = std::shared_ptr<std::function<void()>>;

  void Wait(Callback callback);

  asio::ip::tcp::socket& socket_;
  // Shared with the wait in progress; emptied by Stop.
  Callback on_gone_;
};

}  // namespace lathe::gateway
