// One client connection. It reads requests one after the other and answers each before the next.
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
#include "absl/status/statusor.h"
#include "libs/common/tracing/tracer.h"
#include "services/api-gateway/http/allowed_hosts.h"
#include "services/api-gateway/http/body_limits.h"
#include "services/api-gateway/http/byte_budget.h"
#include "services/api-gateway/http/client_stream.h"
#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/http/connection_slots.h"
#include "services/api-gateway/http/limits.h"
#include "services/api-gateway/http/message.h"
#include "services/api-gateway/http/notices.h"
#include "services/api-gateway/http/read_head.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/http/trusted_proxies.h"
#include "services/api-gateway/http/work_pool.h"

namespace lathe::gateway {

// Returns an error if `request` may not use `route`. Sets its credential if that is in a cookie.
// Called before the request's body is read.
using Authorize =
    std::function<asio::awaitable<absl::StatusOr<KeyState>>(const Route& route, Request& request)>;

// An answer that was sent, for metrics.
struct Answered {
  // Route of the request; null if none was found.
  const Route* route = nullptr;
  int status = 0;
  // Time from the end of the request's headers to the end of the answer.
  absl::Duration took;
  // Error word of a request that was refused before its handler ran; empty otherwise.
  std::string refusal;
};

// Callbacks and notices that the owner of a server supplies.
struct HttpHooks {
  Authorize authorize;
  // Called after each answer; may be empty.
  std::function<void(const Answered&)> on_answered = {};
  Notices notices = Notices(NoticeOptions());
  // Must outlive the server. Null: no traces.
  Tracer* tracer = nullptr;
};

// State that all connections of a server share. It outlives them.
struct ConnectionContext {
  const Router& router;
  HttpHooks hooks;
  HttpLimits limits;
  // Hosts that requests may name. Set before the first connection.
  AllowedHosts hosts = {};
  // Set before the first connection, too.
  TrustedProxies proxies = {};
  ByteBudget budget{limits.max_inflight_bytes};
  WorkPool pool = {};
  // Once true, answers ask clients to open another connection. Never reset.
  std::atomic<bool> is_leaving{false};
  // Once true, no connection reads another request. Never reset.
  std::atomic<bool> is_draining{false};
};

// Owned by the coroutine of Run. All its work runs on the strand of its socket.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Null `tls`: no TLS. `tls` need not outlive the constructor.
  Connection(asio::ip::tcp::socket socket, asio::ssl::context* tls, ConnectionSlots::Slot slot,
             ConnectionContext& context);

  // Serves the connection and returns when it has ended.
  asio::awaitable<void> Run();

  // Closes the connection if it is between two requests, or unconditionally if `now`. Callable
  // from any thread.
  void Drain(bool now);

 private:
  // Result of reading a request.
  enum class Outcome { kRequest, kRefused, kClosed };

  // Reads up to the end of a head into buffer_ and parses it.
  asio::awaitable<Outcome> ReadHead();
  // Reads the body of request_ within its limits and decompresses it.
  asio::awaitable<Outcome> ReadBody();
  // Sets limits_. Returns an error if the head tells that the body breaks them, or that there is no
  // memory for it.
  absl::Status CheckBodyHead();
  // Reads the body into the parser, which drops it if not `is_kept`.
  asio::awaitable<bool> ReadBodyBytes(int64_t max_bytes, bool is_kept);
  // Like ReadBodyBytes for a body of known length, but without Beast's piecewise copies.
  asio::awaitable<bool> ReadSizedBody(size_t num_bytes);
  // Sets the timeout of the next read, after `num_read` bytes of a body that began at `began`.
  void SetBodyTimeout(absl::Time began, int64_t num_read);
  asio::awaitable<bool> AnswerExpectation();
  // Decompresses the body and reserves the memory to parse it.
  asio::awaitable<absl::Status> DecodeBody();
  asio::awaitable<absl::Status> Inflate();
  // Frees the memory of the body, because the connection may idle for minutes.
  void FreeBody();
  asio::awaitable<absl::StatusOr<Response>> Handle();
  // Sets route_ and key_state_. An error is the refusal.
  asio::awaitable<absl::Status> FindRoute(std::vector<std::string> segments);
  // Serves one request. Returns false if the connection has to end.
  asio::awaitable<bool> ServeOne();
  asio::awaitable<bool> Refuse(absl::Status status);
  asio::awaitable<bool> Write(Response response, bool keep_alive);
  // Calls hooks.on_answered, if set, and ends the request's span. `request_id` as in Response.
  void ReportAnswer(int status, const std::string& request_id);
  asio::awaitable<bool> WriteStream(const BodyStream& body);
  // Lets the client read the answer before the connection closes.
  asio::awaitable<void> Linger();

  // Serves requests until the client or the server ends the connection.
  asio::awaitable<void> ServeAll();

  ConnectionContext& context_;
  const ConnectionSlots::Slot slot_;
  ClientStream stream_;
  boost::beast::flat_buffer buffer_;
  ClientWatch client_;
  asio::ip::address peer_;
  // True once the first request is being read.
  bool has_served_ = false;
  // The members below belong to the request in progress.
  std::optional<RequestParser> parser_;
  Request request_;
  const Route* route_ = nullptr;
  KeyState key_state_ = KeyState::kNone;
  absl::Status refusal_;
  std::chrono::steady_clock::time_point began_at_;
  BodyLimits limits_;
  bool is_body_read_ = false;
  // True if the head was valid, so that the end of the body can be found.
  bool can_skip_body_ = false;
  bool is_idle_ = true;
};

}  // namespace lathe::gateway
