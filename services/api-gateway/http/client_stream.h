// The bytes of one connection, in the clear or under TLS.
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

// An AsyncReadStream and AsyncWriteStream of Asio with a timeout over all its operations. Used on
// the strand of its socket.
class ClientStream {
 public:
  using executor_type = asio::ip::tcp::socket::executor_type;

  // `tls` null: in the clear. Not needed after the constructor.
  ClientStream(asio::ip::tcp::socket socket, asio::ssl::context* tls)
      : socket_(std::move(socket)), deadline_(socket_) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  executor_type get_executor() noexcept { return socket_.get_executor(); }
  // Under the encryption.
  asio::ip::tcp::socket& socket() { return socket_; }
  bool is_tls() const { return tls_.has_value(); }

  // The socket is closed then, and operations in progress fail.
  void SetTimeout(absl::Duration timeout) { deadline_.Set(absl::ToChronoMilliseconds(timeout)); }
  void NoTimeout() { deadline_.Clear(); }

  // Before the first read; nothing to do in the clear.
  asio::awaitable<boost::system::error_code> Handshake();
  // Tells the client that no more comes. Under TLS it waits for the client's agreement.
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
