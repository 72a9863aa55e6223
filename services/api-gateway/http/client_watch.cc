#include "services/api-gateway/http/client_watch.h"

#include <boost/system/error_code.hpp>

namespace lathe::gateway {

void ClientWatch::Start(std::function<void()> on_gone) {
  Stop();
  on_gone_ = std::make_shared<std::function<void()>>(std::move(on_gone));
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [this, callback = on_gone_](boost::system::error_code error) {
                       if (!*callback) return;  // stopped; `this` may be gone
                       if (!error) {
                         char byte;
                         socket_.receive(asio::buffer(&byte, 1),
                                         asio::ip::tcp::socket::message_peek, error);
                       }
                       if (!error) return;
                       (*callback)();
                     });
}

void ClientWatch::Stop() {
  if (!on_gone_) return;
  *on_gone_ = nullptr;
  on_gone_.reset();
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace lathe::gateway
