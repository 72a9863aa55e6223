// The byte stream of one connection, with or without TLS.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "services/api-gateway/http/socket_deadline.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// An Asio AsyncReadStream and AsyncWriteStream with one timeout for all its operations. Used only
// on the strand of its socket.
class ClientStream {
 public:
  using executor_type = asio::ip::tcp::socket::executor_type;

  // Null `tls`: no TLS. `tls` need not outlive the constructor.
  ClientStream(asio::ip::tcp::socket socket, asio::ssl::context* tls)
      : socket_(std::move(socket)), deadline_(socket_) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  executor_type get_executor() noexcept { return socket_.get_executor(); }
  // Returns the plain socket below TLS.
  asio::ip::tcp::socket& socket() { return socket_; }
  bool is_tls() const { return tls_.has_value(); }

  // After `timeout` the socket is closed, and operations in progress fail.
  void SetTimeout(absl::Duration timeout) { deadline_.Set(absl::ToChronoMilliseconds(timeout)); }
  void NoTimeout() { deadline_.Clear(); }

  // Makes the TLS handshake. Must run before the first read. Does nothing without TLS.
  asio::awaitable<boost::system::error_code> Handshake();
  // Signals the end of data to the client. Under TLS it waits for the client's close_notify.
  asio::awaitable<void> ShutdownSend();
  void Close();

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            socket_.async_read_some(into, std::move(handler));
          }
        },
        token, buffers);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_) {
            tls_->async_write_some(from, std::move(handler));
          } else {
            socket_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  asio::ip::tcp::socket socket_;
  SocketDeadline deadline_;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
};

}  // namespace lathe::gateway
