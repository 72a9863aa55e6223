#include "tests/bench/service/http_session.h"

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <limits>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "libs/common/strings/string_view.h"

namespace lathe::bench {
namespace {

namespace http = boost::beast::http;

constexpr std::chrono::milliseconds kRepeatPause{500};
constexpr int kMaxRepeats = 120;

constexpr char kSdkHeader[] = "\r\nX-Stainless-Package-Version: bench";

}  // namespace

asio::awaitable<std::string> HttpSession::Post(std::string_view path, std::string_view body,
                                               std::string_view content_type,
                                               std::string_view accept) {
  HttpAnswer answer = co_await Exchange(path, body, content_type, accept);
  for (int i = 0; i < kMaxRepeats && answer.status == 503; ++i) {
    ++num_repeats_;
    asio::steady_timer timer(socket_.get_executor(), kRepeatPause);
    co_await timer.async_wait(asio::use_awaitable);
    answer = co_await Exchange(path, body, content_type, accept);
  }
  if (answer.status != 200) {
    throw std::runtime_error(absl::StrCat(AbslView(path), ": ", answer.status, " ", answer.body));
  }
  co_return std::move(answer.body);
}

asio::awaitable<HttpAnswer> HttpSession::Exchange(std::string_view path, std::string_view body,
                                                  std::string_view content_type,
                                                  std::string_view accept) {
  if (!socket_.is_open()) {
    const asio::ip::tcp::endpoint gateway(asio::ip::address_v4::loopback(),
                                          static_cast<uint16_t>(target_.port));
    co_await socket_.async_connect(gateway, asio::use_awaitable);
    socket_.set_option(asio::ip::tcp::no_delay(true));
  }
  const std::string head = absl::StrCat(
      "POST /api/v1/", AbslView(path),
      " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ", target_.api_key,
      target_.skips_seqs ? kSdkHeader : "", "\r\nContent-Type: ", AbslView(content_type),
      "\r\nAccept: ", AbslView(accept), "\r\nContent-Length: ", body.size(), "\r\n\r\n");
  const std::array<asio::const_buffer, 2> pieces = {asio::buffer(head), asio::buffer(body)};
  co_await asio::async_write(socket_, pieces, asio::use_awaitable);
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  co_await http::async_read(socket_, buffer_, parser, asio::use_awaitable);
  co_return HttpAnswer{.status = static_cast<int>(parser.get().result_int()),
                       .body = std::move(parser.get().body())};
}

void HttpSession::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  buffer_.clear();
}

std::string_view StringField(std::string_view text, std::string_view name) {
  const std::string key = absl::StrCat("\"", AbslView(name), "\":\"");
  const size_t begin = text.find(key);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = text.substr(begin + key.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace lathe::bench
