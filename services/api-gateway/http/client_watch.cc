#include "services/api-gateway/http/client_watch.h"

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

namespace lathe::gateway {

void ClientWatch::Start(std::function<void()> on_gone) {
  Stop();
  on_gone_ = std::make_shared<std::function<void()>>(std::move(on_gone));
  Wait(on_gone_);
}

void ClientWatch::Wait(Callback callback) {
  const auto on_readable = [this, callback](boost::system::error_code error) {
    if (!*callback) return;  // stopped; `this` may be gone
    if (!error) {
      char byte;
      socket_.receive(asio::buffer(&byte, 1), asio::ip::tcp::socket::message_peek, error);
    }
    if (error == asio::error::would_block) {
      Wait(callback);  // woken by bytes that were read since
    } else if (error) {
      (*callback)();
    }
  };
  socket_.async_wait(asio::ip::tcp::socket::wait_read, on_readable);
}

void ClientWatch::Stop() {
  if (!on_gone_) return;
  *on_gone_ = nullptr;
  on_gone_.reset();
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace lathe::gateway
