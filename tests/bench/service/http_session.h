// One client's connection to the gateway: cheap, so that a bench measures the service.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <string>
#include <string_view>

namespace lathe::bench {

namespace asio = boost::asio;

struct Target {
  int port = 0;
  std::string api_key;
  // As the SDK: a seq_id that is skipped counts as abandoned. Else a request waits for it.
  bool skips_seqs = true;
};

inline constexpr char kJson[] = "application/json";
inline constexpr char kProtobuf[] = "application/x-protobuf";

// Keeps its connection alive; one request at a time. Not thread-safe.
class HttpSession {
 public:
  HttpSession(asio::any_io_executor executor, Target target)
      : socket_(std::move(executor)), target_(std::move(target)) {}

  // Body of the answer. Throws when the connection breaks or the status is not 200.
  asio::awaitable<std::string> Post(std::string_view path, std::string_view body,
                                    std::string_view content_type = kJson,
                                    std::string_view accept = kJson);
  void Close();

 private:
  asio::ip::tcp::socket socket_;
  Target target_;
  boost::beast::flat_buffer buffer_;
};

// The value of a string field of a flat JSON object; empty: none.
std::string_view StringField(std::string_view json, std::string_view name);

}  // namespace lathe::bench
