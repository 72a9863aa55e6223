#include "libs/common/metrics/metrics_server.h"

#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "libs/common/concurrency/named_thread.h"
#include "libs/common/metrics/pid_header.h"

namespace lathe {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Longest life of a connection. Scrapers wait ten seconds by default.
constexpr std::chrono::seconds kTimeout{10};
// A further connection closes the oldest one, so that idle ones cannot keep a probe out.
constexpr size_t kMaxConnections = 64;
constexpr size_t kMaxHeadBytes = 8 << 10;

struct Page {
  int status = 200;
  std::string body;
};

Page ProbePage(const absl::Status& status) {
  if (status.ok()) return {200, "ok\n"};
  return {503, std::string(status.message()) + "\n"};
}

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string AnswerOf(const Page& page) {
  return "HTTP/1.1 " + std::to_string(page.status) + " " + std::string(ReasonOf(page.status)) +
         "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
         std::to_string(page.body.size()) + "\r\n" + kPidHeader + ": " + std::to_string(getpid()) +
         "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n" + page.body;
}

using MakePage = std::function<Page(std::string_view path, std::string_view query)>;

// Returns the page of a probe; nullopt for other paths.
std::optional<Page> FindProbe(const Probes& probes, std::string_view path, std::string_view query) {
  if (path == "/livez") return probes.is_live ? ProbePage(probes.is_live()) : Page{200, "ok\n"};
  if (path == "/startupz") {
    return ProbePage(probes.has_started ? probes.has_started() : probes.is_ready());
  }
  if (path != "/readyz") return std::nullopt;
  const bool may_stand_by = query == "standby=ok" && probes.is_serving;
  return ProbePage(may_stand_by ? probes.is_serving() : probes.is_ready());
}

// One request and its answer. Runs on the server's thread; its handlers keep it alive.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(tcp::socket socket, const MakePage& make_page, std::function<void()> on_end)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor(), kTimeout),
        make_page_(make_page),
        on_end_(std::move(on_end)) {}
  ~Exchange() { on_end_(); }

  void Start() {
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      if (const auto self = weak.lock(); self && !error) self->Close();
    });
    Read();
  }

  // Ends the exchange.
  void Close() {
    error_code ignored;
    timer_.cancel();
    socket_.close(ignored);
  }

 private:
  void Read() {
    socket_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](error_code error, size_t num_bytes) {
                              if (error) return self->Close();
                              self->head_.append(self->piece_, num_bytes);
                              self->OnRead();
                            });
  }

  void OnRead() {
    if (head_.find("\r\n\r\n") != std::string::npos || head_.find("\n\n") != std::string::npos) {
      Answer(PageOf());
    } else if (head_.size() > kMaxHeadBytes) {
      Answer({431, "the request is too long\n"});
    } else {
      Read();
    }
  }

  Page PageOf() const {
    const std::string_view line = std::string_view(head_).substr(0, head_.find_first_of("\r\n"));
    if (!line.starts_with("GET ")) return {405, "only GET is allowed\n"};
    const std::string_view target = line.substr(4);
    const std::string_view uri = target.substr(0, target.find(' '));
    const size_t mark = uri.find('?');
    const bool has_query = mark != std::string_view::npos;
    return make_page_(uri.substr(0, mark), has_query ? uri.substr(mark + 1) : std::string_view());
  }

  void Answer(const Page& page) {
    answer_ = AnswerOf(page);
    asio::async_write(socket_, asio::buffer(answer_),
                      [self = shared_from_this()](error_code error, size_t) {
                        // The client closes, or the timer does, so that no answer is cut off.
                        if (error) return self->Close();
                        self->socket_.shutdown(tcp::socket::shutdown_send, error);
                        self->Drop();
                      });
  }

  // Reads until the client closes.
  void Drop() {
    socket_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](error_code error, size_t) {
                              error ? self->Close() : self->Drop();
                            });
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const MakePage& make_page_;
  const std::function<void()> on_end_;
  char piece_[1024];
  std::string head_;
  std::string answer_;
};

// Splits HOST:PORT. The host may be empty or in brackets.
tcp::endpoint EndpointOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "" : address.substr(0, colon);
  const std::string port = colon == std::string::npos ? address : address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  const int number = std::stoi(port);
  if (number < 0 || number > 65535) throw std::out_of_range("port " + port);
  const auto ip =
      host.empty() ? asio::ip::address(asio::ip::address_v4::any()) : asio::ip::make_address(host);
  return {ip, static_cast<asio::ip::port_type>(number)};
}

}  // namespace

struct MetricsServer::Server {
  // Throws if `address` is malformed or cannot be bound.
  Server(const std::string& address, MakePage make_page)
      : make_page_(std::move(make_page)), acceptor_(io_, EndpointOf(address)) {
    Accept();
    thread_.emplace("metrics", [this] { io_.run(); });
  }

  ~Server() {
    io_.stop();
    thread_->Join();
  }

  int port() const { return acceptor_.local_endpoint().port(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (!error) {
        Serve(std::move(socket));
        return Accept();
      }
      // The process has probably run out of file descriptors.
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait([this](error_code) { Accept(); });
    });
  }

  void Serve(tcp::socket socket) {
    if (open_.size() >= kMaxConnections) {
      if (const auto oldest = open_.front().lock()) oldest->Close();
    }
    const auto place = open_.emplace(open_.end());
    const auto exchange = std::make_shared<Exchange>(std::move(socket), make_page_,
                                                     [this, place] { open_.erase(place); });
    *place = exchange;
    exchange->Start();
  }

  const MakePage make_page_;
  // In the order of their beginnings. Outlives the io_context, whose handlers hold the exchanges.
  std::list<std::weak_ptr<Exchange>> open_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_{io_};
  std::optional<NamedThread> thread_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry, Probes probes) {
  const auto make_page = [registry = std::move(registry), probes = std::move(probes)](
                             std::string_view path, std::string_view query) -> Page {
    if (path == "/metrics") {
      return {200, prometheus::TextSerializer().Serialize(registry->Collect())};
    }
    if (const std::optional<Page> probe = FindProbe(probes, path, query)) return *probe;
    return {404, "the pages are /metrics, /livez, /readyz and /startupz\n"};
  };
  try {
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::make_unique<Server>(address, make_page)));
  } catch (const std::exception& error) {
    return absl::UnavailableError("metrics cannot listen on " + address + ": " + error.what());
  }
}

MetricsServer::MetricsServer(std::unique_ptr<Server> server) : server_(std::move(server)) {}
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return server_->port(); }

}  // namespace lathe
