#include "services/api-gateway/http/client_watch.h"

#include <array>
#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

namespace lathe::gateway {
namespace {

// A client that closes sends an alert. TLS 1.3 wraps it in a data record: 2 bytes of alert, 1 byte
// of content type and a 16-byte tag. No HTTP request is that short.
constexpr size_t kTlsRecordHead = 5;
constexpr unsigned char kTlsAlert = 21;
constexpr unsigned char kTlsData = 23;
constexpr int kTls13AlertBytes = 2 + 1 + 16;

}  // namespace

void ClientWatch::Start(std::function<void()> on_gone) {
  Stop();
  on_gone_ = std::make_shared<std::function<void()>>(std::move(on_gone));
  Wait(on_gone_);
}

void ClientWatch::Wait(Callback callback) {
  const auto on_readable = [this, callback](boost::system::error_code error) {
    if (!*callback) return;  // stopped; `this` may be destroyed
    if (!error) error = Peek();
    if (error == asio::error::would_block) {
      Wait(callback);  // the bytes that woke it have been read since
    } else if (error) {
      (*callback)();
    }
  };
  socket_.async_wait(asio::ip::tcp::socket::wait_read, on_readable);
}

boost::system::error_code ClientWatch::Peek() {
  std::array<unsigned char, kTlsRecordHead> head{};
  boost::system::error_code error;
  const size_t size =
      socket_.receive(asio::buffer(head), asio::ip::tcp::socket::message_peek, error);
  if (error || !is_tls_ || size < kTlsRecordHead) return error;
  const int length = head[3] << 8 | head[4];
  const bool is_close_notify =
      head[0] == kTlsAlert || (head[0] == kTlsData && length == kTls13AlertBytes);
  return is_close_notify ? asio::error::eof : error;
}

bool ClientWatch::HasLeft() {
  const boost::system::error_code error = Peek();
  return error && error != asio::error::would_block;
}

void ClientWatch::Stop() {
  if (!on_gone_) return;
  *on_gone_ = nullptr;
  on_gone_.reset();
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

}  // namespace lathe::gateway
