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
  // `socket` must outlive it and be in non-blocking mode; under TLS its bytes are records.
  ClientWatch(asio::ip::tcp::socket& socket, bool is_tls) : socket_(socket), is_tls_(is_tls) {}
  ~ClientWatch() { Stop(); }

  // Calls `on_gone` once, on the connection's executor, if the client closes before Stop. A client
  // that sends its next request early is not watched any more.
  void Start(std::function<void()> on_gone);
  // No call after this.
  void Stop();

 private:
  using Callback = std::shared_ptr<std::function<void()>>;

  void Wait(Callback callback);
  // Looks at what has arrived: an error, or end of file, when the client has left.
  boost::system::error_code Peek();

  asio::ip::tcp::socket& socket_;
  const bool is_tls_;
  // Shared with the wait in progress; emptied by Stop.
  Callback on_gone_;
};

}  // namespace lathe::gateway
