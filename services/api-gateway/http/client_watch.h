// Notifies a waiting handler when its client disconnects.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

namespace lathe::gateway {

namespace asio = boost::asio;

// Owned by one connection and used on its strand. It peeks at the socket but consumes no bytes.
class ClientWatch {
 public:
  // `socket` must outlive it and be in non-blocking mode. If `is_tls`, it carries TLS records.
  ClientWatch(asio::ip::tcp::socket& socket, bool is_tls) : socket_(socket), is_tls_(is_tls) {}
  ~ClientWatch() { Stop(); }

  // Calls `on_gone` once, on the connection's executor, if the client closes before Stop. The watch
  // ends if the client sends its next request early.
  void Start(std::function<void()> on_gone);
  // Ends the watch: `on_gone` is not called afterwards.
  void Stop();
  // Returns true if the client has closed the connection or its sending side.
  bool HasLeft();

 private:
  using Callback = std::shared_ptr<std::function<void()>>;

  void Wait(Callback callback);
  // Peeks at the received bytes. Returns an error or end of file if the client has disconnected.
  boost::system::error_code Peek();

  asio::ip::tcp::socket& socket_;
  const bool is_tls_;
  // Shared with the wait in progress; emptied by Stop.
  Callback on_gone_;
};

}  // namespace lathe::gateway
