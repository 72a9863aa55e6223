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

// One acceptor, any number of connections, each a coroutine on a strand of its own.
class HttpServer {
 public:
  // All must outlive it; connections end before `io` does.
  HttpServer(asio::io_context& io, const Router& router, HttpHooks hooks, HttpLimits limits,
             TlsFiles tls);

  // Begins to accept on `address`, HOST:PORT with a numeric host; port 0 takes a free one.
  // Unavailable when it cannot be bound; errors of LoadServerContext when TLS cannot be offered.
  // Requests to other `hosts` are refused.
  absl::Status Listen(const std::string& address, AllowedHosts hosts = {});
  int port() const { return port_; }

  // Stops accepting and closes connections that are between requests; the others close after the
  // request they are in. Any thread.
  void Drain();
  // Closes what is left.
  void CloseAll();

  int64_t num_connections() const;

 private:
  asio::awaitable<void> AcceptLoop();
  void Serve(asio::ip::tcp::socket socket);
  std::vector<std::shared_ptr<Connection>> Connections() const;

  asio::io_context& io_;
  ConnectionContext context_;
  ConnectionSlots slots_;
  // Null: in the clear.
  std::unique_ptr<TlsContexts> tls_;
  asio::ip::tcp::acceptor acceptor_;
  int port_ = 0;
  mutable absl::Mutex mu_;
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  // Size of connections_ at which ended ones are swept out next.
  size_t sweep_size_ ABSL_GUARDED_BY(mu_) = 64;
};

}  // namespace lathe::gateway
