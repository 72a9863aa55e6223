// One client connection: reads requests one after the other, answers each in one write.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/api-gateway/http/allowed_hosts.h"
#include "services/api-gateway/http/client_stream.h"
#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/http/connection_slots.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/notices.h"
#include "services/api-gateway/http/read_head.h"
#include "services/api-gateway/http/router.h"

namespace lathe::gateway {

// Whether `request` may use `route`, asked before its body is read.
using Authorize =
    std::function<asio::awaitable<absl::Status>(const Route& route, const Request& request)>;

// An answer that was sent, for metrics.
struct Answered {
  // Null: none was found.
  const Route* route = nullptr;
  int status = 0;
  // From the end of the headers to the end of the answer.
  absl::Duration took;
  // The word of the error by which the request was refused before its route saw it; else empty.
  std::string refusal;
};

// What the owner of a server has a say in.
struct HttpHooks {
  Authorize authorize;
  // Called when an answer was sent; may be empty.
  std::function<void(const Answered&)> on_answered = {};
  Notices notices = Notices(NoticeOptions());
};

// What all connections of a server share; outlives them.
struct ConnectionContext {
  const Router& router;
  HttpHooks hooks;
  HttpLimits limits;
  // Set before the first connection.
  AllowedHosts hosts = {};
  // Set once: no connection takes another request.
  std::atomic<bool> is_draining{false};
};

// Owned by its coroutine; everything runs on its strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `tls` null: in the clear; else it is needed until the constructor returns.
  Connection(asio::ip::tcp::socket socket, asio::ssl::context* tls, ConnectionSlots::Slot slot,
             ConnectionContext& context);

  // Returns when the connection is over.
  asio::awaitable<void> Run();

  // Any thread: closes the connection if it is between two requests; with `now`, in any case.
  void Drain(bool now);

 private:
  // What became of reading a request.
  enum class Outcome { kRequest, kRefused, kClosed };

  // Reads up to the end of a head into buffer_ and parses it.
  asio::awaitable<Outcome> ReadHead();
  // Reads, bounds and inflates the body of request_.
  asio::awaitable<Outcome> ReadBody();
  asio::awaitable<bool> ReadBodyBytes();
  // As ReadBodyBytes, for a body of known length, without Beast's piecemeal copies.
  asio::awaitable<bool> ReadSizedBody(size_t num_bytes);
  // For the read that follows `num_read` bytes of a body begun at `began`.
  void SetBodyTimeout(absl::Time began, int64_t num_read);
  asio::awaitable<bool> AnswerExpectation();
  absl::Status Inflate();
  // Gives its memory back: an assigned string would keep it, and the connection may idle for
  // minutes.
  void FreeBody();
  // Fills route_; refuses by status.
  asio::awaitable<absl::Status> FindRoute(std::vector<std::string> segments);
  // One request and its answer; false ends the connection.
  asio::awaitable<bool> ServeOne();
  asio::awaitable<bool> Refuse(absl::Status status);
  asio::awaitable<bool> Write(Response response, bool keep_alive);
  // Ends the request's account.
  void ReportAnswer(int status);
  asio::awaitable<bool> WriteStream(const BodyStream& body);
  // Lets the client read our answer before the connection is torn down.
  asio::awaitable<void> Linger();

  // Requests until one of the sides has enough.
  asio::awaitable<void> ServeAll();

  ConnectionContext& context_;
  const ConnectionSlots::Slot slot_;
  ClientStream stream_;
  boost::beast::flat_buffer buffer_;
  ClientWatch client_;
  asio::ip::address peer_;
  // Of the request in progress.
  std::optional<RequestParser> parser_;
  Request request_;
  const Route* route_ = nullptr;
  absl::Status refusal_;
  std::chrono::steady_clock::time_point began_at_;
  int64_t body_limit_ = 0;
  bool is_body_read_ = false;
  // The head was sound, so the end of the body can be found.
  bool can_skip_body_ = false;
  bool is_idle_ = true;
};

}  // namespace lathe::gateway
