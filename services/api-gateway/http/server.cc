#include "services/api-gateway/http/server.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::gateway {
namespace {

// Two thousand clients may connect at once.
constexpr int kListenBacklog = 4096;
constexpr std::chrono::milliseconds kAcceptPause{100};

absl::StatusOr<asio::ip::tcp::endpoint> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == address.npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is not HOST:PORT", address));
  }
  std::string host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto ip = asio::ip::make_address(host, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is not an IP address", host));
  }
  return asio::ip::tcp::endpoint(ip, static_cast<asio::ip::port_type>(port));
}

void LogEnd(std::exception_ptr exception) {
  if (!exception) return;
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    LogError("connection ended by an exception", {{"error", e.what()}});
  }
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, const Router& router, HttpHooks hooks,
                       HttpLimits limits, TlsFiles tls)
    : io_(io),
      context_{router, std::move(hooks), limits},
      slots_(limits.max_connections_per_address),
      tls_(tls.enabled() ? std::make_unique<TlsContexts>(std::move(tls)) : nullptr),
      acceptor_(asio::make_strand(io)) {}

absl::Status HttpServer::Listen(const std::string& address, AllowedHosts hosts,
                                TrustedProxies proxies) {
  ASSIGN_OR_RETURN(const asio::ip::tcp::endpoint endpoint, ParseAddress(address));
  context_.hosts = std::move(hosts);
  context_.proxies = std::move(proxies);
  if (tls_) RETURN_IF_ERROR(tls_->Load());
  boost::system::error_code error;
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(kListenBacklog, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s: %s", address, error.message()));
  }
  port_ = acceptor_.local_endpoint().port();
  asio::co_spawn(acceptor_.get_executor(), AcceptLoop(), LogEnd);
  return absl::OkStatus();
}

asio::awaitable<void> HttpServer::AcceptLoop() {
  while (acceptor_.is_open()) {
    boost::system::error_code error;
    asio::ip::tcp::socket socket(asio::make_strand(io_));
    co_await acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      Serve(std::move(socket));
    } else if (acceptor_.is_open()) {
      // The process has probably run out of file descriptors. Ending connections will free some.
      LogWarn("cannot accept a connection", {{"error", error.message()}});
      asio::steady_timer pause(acceptor_.get_executor(), kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

void HttpServer::Serve(asio::ip::tcp::socket socket) {
  const auto executor = socket.get_executor();
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;  // the client has disconnected already
  ConnectionSlots::Slot slot = context_.proxies.Contains(peer.address())
                                   ? std::make_shared<int>(0)
                                   : slots_.Take(peer.address());
  if (!slot) return;
  const std::shared_ptr<asio::ssl::context> tls = tls_ ? tls_->Current() : nullptr;
  const auto connection =
      std::make_shared<Connection>(std::move(socket), tls.get(), std::move(slot), context_);
  {
    absl::MutexLock lock(&mu_);
    const auto limit = static_cast<size_t>(context_.limits.max_connections);
    if (connections_.size() >= std::min(sweep_size_, limit)) {
      std::erase_if(connections_, [](const auto& entry) { return entry.expired(); });
      sweep_size_ = std::max<size_t>(64, connections_.size() * 2);
    }
    if (connections_.size() >= limit) return;
    connections_.push_back(connection);
  }
  asio::co_spawn(executor, connection->Run(), LogEnd);
}

std::vector<std::shared_ptr<Connection>> HttpServer::Connections() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<Connection>> alive;
  for (const auto& entry : connections_) {
    if (auto connection = entry.lock()) alive.push_back(std::move(connection));
  }
  return alive;
}

void HttpServer::Drain() {
  Leave();
  context_.is_draining = true;
  asio::post(acceptor_.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  });
  for (const auto& connection : Connections()) connection->Drain(/*now=*/false);
}

void HttpServer::CloseAll() {
  for (const auto& connection : Connections()) connection->Drain(/*now=*/true);
}

int64_t HttpServer::num_connections() const { return static_cast<int64_t>(Connections().size()); }

}  // namespace lathe::gateway
