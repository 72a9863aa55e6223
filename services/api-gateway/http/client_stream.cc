#include "services/api-gateway/http/client_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace lathe::gateway {

asio::awaitable<boost::system::error_code> ClientStream::Handshake() {
  boost::system::error_code error;
  if (tls_) {
    co_await tls_->async_handshake(asio::ssl::stream_base::server,
                                   asio::redirect_error(asio::use_awaitable, error));
  }
  co_return error;
}

asio::awaitable<void> ClientStream::ShutdownSend() {
  boost::system::error_code ignored;
  if (tls_) {
    co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  }
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void ClientStream::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace lathe::gateway
