// The bytes of one connection, in the clear or under TLS.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace lathe::gateway {

namespace asio = boost::asio;

// An AsyncReadStream and AsyncWriteStream of Asio with a timeout over all its operations. Used on
// the strand of its socket.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  // `tls` null: in the clear. Not needed after the constructor.
  ClientStream(asio::ip::tcp::socket socket, asio::ssl::context* tls) : tcp_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(tcp_, *tls);
  }

  executor_type get_executor() noexcept { return tcp_.get_executor(); }
  asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  // Under the encryption: for what is thrown away.
  boost::beast::tcp_stream& tcp() { return tcp_; }
  bool is_tls() const { return tls_.has_value(); }

  // Operations that are not done by then fail, and the socket is closed.
  void SetTimeout(absl::Duration timeout) {
    tcp_.expires_after(absl::ToChronoMilliseconds(timeout));
  }
  void NoTimeout() { tcp_.expires_never(); }

  // Before the first read; nothing to do in the clear.
  asio::awaitable<boost::system::error_code> Handshake();
  // Tells the client that no more comes. Under TLS it waits for the client's agreement.
  asio::awaitable<void> ShutdownSend();
  void Close() { tcp_.close(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            tcp_.async_read_some(into, std::move(handler));
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
            tcp_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace lathe::gateway
