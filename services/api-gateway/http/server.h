// Accepts connections and runs them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/listener/tls_files.h"
#include "services/api-gateway/http/connection.h"
#include "services/api-gateway/http/connection_slots.h"
#include "services/api-gateway/http/tls_contexts.h"

namespace lathe::gateway {

// Owns one acceptor. Each connection is a coroutine on its own strand.
class HttpServer {
 public:
  // `io` and `router` must outlive it. All connections must end before `io` is destroyed.
  HttpServer(asio::io_context& io, const Router& router, HttpHooks hooks, HttpLimits limits,
             TlsFiles tls);

  // Starts to accept on `address`, HOST:PORT. The host is an IP address or "localhost"; port 0
  // takes a free port. Refuses requests for hosts other than `hosts`. Connections of `proxies` are
  // not counted per address. Returns InvalidArgument for a
  // malformed address, Unavailable if it cannot be bound, and the errors of LoadServerContext if
  // TLS cannot be used.
  absl::Status Listen(const std::string& address, AllowedHosts hosts = {},
                      TrustedProxies proxies = {});
  int port() const { return port_; }

  // Ends each connection with its next answer, so that clients move to other gateways. New
  // connections are accepted. Callable from any thread.
  void Leave() { context_.is_leaving = true; }
  // Stops accepting and closes connections that are between requests. The others close after their
  // current request. Callable from any thread.
  void Drain();
  // Closes all remaining connections, even during a request.
  void CloseAll();

  int64_t num_connections() const;
  // Memory that requests have reserved, and its bound.
  const ByteBudget& budget() const { return context_.budget; }

 private:
  asio::awaitable<void> AcceptLoop();
  void Serve(asio::ip::tcp::socket socket);
  std::vector<std::shared_ptr<Connection>> Connections() const;

  asio::io_context& io_;
  ConnectionContext context_;
  ConnectionSlots slots_;
  // Null if the server does not use TLS.
  std::unique_ptr<TlsContexts> tls_;
  asio::ip::tcp::acceptor acceptor_;
  int port_ = 0;
  mutable absl::Mutex mu_;
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  // Size of connections_ at which ended connections are removed next.
  size_t sweep_size_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace lathe::gateway
