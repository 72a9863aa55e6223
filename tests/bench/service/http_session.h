// A client's connection to the gateway, cheap enough that a benchmark measures the service.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::bench {

namespace asio = boost::asio;

struct Target {
  int port = 0;
  std::string api_key;
  // True to identify as the SDK: the service then treats a skipped seq_id as abandoned. If false,
  // later requests wait for it.
  bool skips_seqs = true;
};

inline constexpr char kJson[] = "application/json";
inline constexpr char kProtobuf[] = "application/x-protobuf";

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// Keeps its connection alive and has at most one request in flight. Not thread-safe.
class HttpSession {
 public:
  HttpSession(const asio::any_io_executor& executor, Target target)
      : socket_(executor), target_(std::move(target)) {}

  // Returns the response body. Repeats what got 503, as the SDK does. Throws if the connection
  // breaks, for another status than 200, and after a minute of 503.
  asio::awaitable<std::string> Post(std::string_view path, std::string_view body,
                                    std::string_view content_type = kJson,
                                    std::string_view accept = kJson);
  // As Post, but returns an answer of any status.
  asio::awaitable<HttpAnswer> Exchange(std::string_view path, std::string_view body,
                                       std::string_view content_type = kJson,
                                       std::string_view accept = kJson);
  void Close();

  // Number of requests that Post sent again.
  int64_t num_repeats() const { return num_repeats_; }

 private:
  asio::ip::tcp::socket socket_;
  Target target_;
  int64_t num_repeats_ = 0;
  boost::beast::flat_buffer buffer_;
};

// Returns the value of a string field of a flat JSON object; empty if it is missing.
std::string_view StringField(std::string_view json, std::string_view name);

}  // namespace lathe::bench
