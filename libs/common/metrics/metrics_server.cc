#include "libs/common/metrics/metrics_server.h"

#include <CivetServer.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

namespace lathe {
namespace {

struct Page {
  int status = 200;
  std::string body;
};

// Answers GET with the result of `make_page`.
class PageHandler : public CivetHandler {
 public:
  explicit PageHandler(std::function<Page()> make_page) : make_page_(std::move(make_page)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    const Page page = make_page_();
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: %zu\r\nCache-Control: no-store\r\n\r\n",
              page.status, page.status == 200 ? "OK" : "Service Unavailable", page.body.size());
    mg_write(connection, page.body.data(), page.body.size());
    return true;
  }

 private:
  const std::function<Page()> make_page_;
};

Page MetricsPage(const prometheus::Registry& registry) {
  return {200, prometheus::TextSerializer().Serialize(registry.Collect())};
}

Page ProbePage(const absl::Status& status) {
  if (status.ok()) return {200, "ok\n"};
  return {503, std::string(status.message()) + "\n"};
}

}  // namespace

struct MetricsServer::Server {
  Server(const std::string& address, std::shared_ptr<prometheus::Registry> registry, Check is_ready,
         Check is_live)
      : metrics([registry = std::move(registry)] { return MetricsPage(*registry); }),
        live([is_live = std::move(is_live)] { return ProbePage(is_live()); }),
        ready([is_ready = std::move(is_ready)] { return ProbePage(is_ready()); }),
        http(std::vector<std::string>{"listening_ports", address, "num_threads", "2",
                                      "enable_keep_alive", "no"}) {
    http.addHandler("/metrics$", metrics);
    http.addHandler("/livez$", live);
    http.addHandler("/readyz$", ready);
  }

  PageHandler metrics;
  PageHandler live;
  PageHandler ready;
  CivetServer http;  // last member: it stops before its handlers are destroyed
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry, Check is_ready,
    Check is_live) {
  try {
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::make_unique<Server>(
        address, std::move(registry), std::move(is_ready), std::move(is_live))));
  } catch (const CivetException& error) {
    return absl::UnavailableError("metrics cannot listen on " + address + ": " + error.what());
  }
}

MetricsServer::MetricsServer(std::unique_ptr<Server> server) : server_(std::move(server)) {}
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return server_->http.getListeningPorts().front(); }

}  // namespace lathe
