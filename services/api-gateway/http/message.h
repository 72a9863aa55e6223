// A request and its answer as the routes see them, without Beast's types.
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
#include "libs/common/tracing/span_context.h"
#include "services/api-gateway/http/byte_budget.h"

namespace lathe::gateway {

namespace asio = boost::asio;

class ClientWatch;
class WorkPool;

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
  // Path as sent, without the query. Used in messages only.
  std::string path;
  // Decoded segments that the `{…}` of the route's pattern matched, in order.
  std::vector<std::string> path_parameters;
  std::vector<QueryParameter> query;
  // Headers as sent, in order, including duplicates.
  std::vector<Header> headers;
  // Decompressed body. Handlers may move from it.
  std::string body;
  // True if the request came over TLS.
  bool is_tls = false;
  // Address of the client as OwnerOf maps it: for IPv6 the /64.
  asio::ip::address peer;
  // Value of X-API-Key, or the session on routes for browsers; empty if none was sent. It is never
  // empty on routes that need one of them.
  std::string api_key;
  // Span of the request in its trace. No context: the request is not traced.
  SpanContext span;
  // Memory that is reserved for the body and what is made of it.
  ByteBudget::Share memory;
  // Threads for long work. Null in tests without a connection.
  WorkPool* pool = nullptr;
  // Detects that the client disconnects while a handler waits. Null in tests without a connection.
  ClientWatch* client = nullptr;

  // Returns the first header of that name, ignoring case, or "" if there is none.
  std::string_view HeaderValue(std::string_view name) const;
  // Returns the first value of that name, or nullopt if the query has none.
  std::optional<std::string_view> QueryValue(std::string_view name) const;
  // Frees the body, which an assignment would not. Handlers that wait long call it.
  void FreeBody() { std::string().swap(body); }
};

// A body that is produced in pieces. `next` is called until it has returned `num_bytes` in all. An
// error or an empty piece closes the connection.
struct BodyStream {
  int64_t num_bytes = 0;
  // True: the length is not known. The body ends with the connection.
  bool is_endless = false;
  std::function<asio::awaitable<absl::StatusOr<std::string>>()> next;
};

struct Response {
  int status = 200;
  // Value of the Content-Type header; empty: no such header.
  std::string content_type = "application/json";
  std::string body;
  // Headers other than Content-Type, Content-Length and Connection.
  std::vector<Header> headers;
  // Id of the accepted request that the answer is about, for traces. Empty: none.
  std::string request_id;
  // If set, it is sent instead of `body`.
  std::optional<BodyStream> stream;
  // Called on the connection's strand once the whole answer was written. Not called if the client
  // had left before. Must not block.
  std::function<void()> on_written;
};

// Returns the status line and headers of `response`, including the blank line. A 204 and
// a 304 have no Content-Length.
std::string ResponseHead(const Response& response, bool keep_alive);

}  // namespace lathe::gateway
