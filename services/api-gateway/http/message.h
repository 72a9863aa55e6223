// A request and its answer as the routes see them: free of Beast.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::gateway {

namespace asio = boost::asio;

class ClientWatch;

struct Header {
  std::string name;
  std::string value;
};

struct QueryParameter {
  std::string name;
  std::string value;
};

struct Request {
  // GET, POST, …
  std::string method;
  // As sent, without the query: for messages only.
  std::string path;
  // What the `{…}` of the route's pattern matched, decoded, in order.
  std::vector<std::string> path_parameters;
  std::vector<QueryParameter> query;
  // As sent, in order, duplicates included.
  std::vector<Header> headers;
  // Inflated. Handlers may move from it.
  std::string body;
  // Whether it came over TLS.
  bool is_tls = false;
  // Whom it came from; of an IPv6 address the /64, which is one owner's.
  asio::ip::address peer;
  // X-API-Key; empty on public routes when none was sent.
  std::string api_key;
  // Sees the client leave while a handler waits; null in tests without a connection.
  ClientWatch* client = nullptr;

  // The first header of that name in any case; "" when there is none.
  std::string_view HeaderValue(std::string_view name) const;
  // Unset when the query has no such name.
  std::optional<std::string_view> QueryValue(std::string_view name) const;
};

// A body that is not in memory at once. `next` is called until it has given `num_bytes` in all; an
// error, or an empty piece, breaks the connection.
struct BodyStream {
  int64_t num_bytes = 0;
  std::function<asio::awaitable<absl::StatusOr<std::string>>()> next;
};

struct Response {
  int status = 200;
  // Empty: no Content-Type header.
  std::string content_type = "application/json";
  std::string body;
  // Beside Content-Type, Content-Length and Connection.
  std::vector<Header> headers;
  // Set: sent instead of `body`.
  std::optional<BodyStream> stream;
};

// Status line and headers of `response`, blank line included. A 204 has no Content-Length.
std::string ResponseHead(const Response& response, bool keep_alive);

}  // namespace lathe::gateway
