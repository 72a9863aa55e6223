#include "libs/common/metrics/metrics_server.h"

#include <prometheus/counter.h>
#include <prometheus/text_serializer.h>

#include <boost/asio.hpp>
#include <catch2/catch.hpp>
#include <list>

#include "libs/common/metrics/family_list.h"

namespace lathe {
namespace {

// Returns the whole answer to a request for `path`.
std::string Get(int port, const std::string& path, const std::string& method = "GET") {
  boost::asio::io_context context;
  boost::asio::ip::tcp::socket socket(context);
  socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
  boost::asio::write(socket, boost::asio::buffer(method + " " + path + " HTTP/1.0\r\n\r\n"));
  std::string answer;
  boost::system::error_code end;
  boost::asio::read(socket, boost::asio::dynamic_buffer(answer), end);
  return answer;
}

TEST_CASE("The metrics page shows the registry's values", "[metrics]") {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter()
      .Name("lathe_test_things_total")
      .Register(*registry)
      .Add({})
      .Increment(3);
  auto server =
      *MetricsServer::Start("127.0.0.1:0", registry, {.is_ready = [] { return absl::OkStatus(); }});
  const std::string answer = Get(server->port(), "/metrics");
  CHECK(answer.find("HTTP/1.1 200") == 0);
  CHECK(answer.find("lathe_test_things_total 3") != std::string::npos);
}

TEST_CASE("Readiness is asked anew each time and says why not", "[metrics]") {
  absl::Status status = absl::UnavailableError("base model is loading");
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [&] { return status; }});
  CHECK(Get(server->port(), "/readyz").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/readyz").find("base model is loading") != std::string::npos);
  CHECK(Get(server->port(), "/livez").find("HTTP/1.1 200") == 0);
  status = absl::OkStatus();
  CHECK(Get(server->port(), "/readyz").find("HTTP/1.1 200") == 0);
}

TEST_CASE("A process that says it hangs is not live", "[metrics]") {
  auto server = *MetricsServer::Start(
      "127.0.0.1:0", std::make_shared<prometheus::Registry>(),
      {.is_ready = [] { return absl::OkStatus(); },
       .is_live = [] { return absl::DeadlineExceededError("nothing moved for 31 s"); }});
  CHECK(Get(server->port(), "/livez").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/livez").find("nothing moved for 31 s") != std::string::npos);
  CHECK(Get(server->port(), "/readyz").find("HTTP/1.1 200") == 0);
}

TEST_CASE("Every answer names its process", "[metrics]") {
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [] { return absl::OkStatus(); }});
  CHECK(Get(server->port(), "/livez").find("Lathe-Pid: " + std::to_string(getpid()) + "\r\n") !=
        std::string::npos);
}

TEST_CASE("A standby is not ready, but serves as one", "[metrics]") {
  absl::Status serving = absl::OkStatus();
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [] { return absl::UnavailableError("standby"); },
                                       .is_serving = [&] { return serving; }});
  CHECK(Get(server->port(), "/readyz").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/readyz?standby=no").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/readyz?standby=ok").find("HTTP/1.1 200") == 0);
  serving = absl::UnavailableError("the lease cannot be read");
  CHECK(Get(server->port(), "/readyz?standby=ok").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/readyz?standby=ok").find("cannot be read") != std::string::npos);
}

TEST_CASE("A process without standbys answers both kinds of readiness alike", "[metrics]") {
  absl::Status status = absl::UnavailableError("base model is loading");
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [&] { return status; }});
  CHECK(Get(server->port(), "/readyz?standby=ok").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/startupz").find("HTTP/1.1 503") == 0);
  status = absl::OkStatus();
  CHECK(Get(server->port(), "/readyz?standby=ok").find("HTTP/1.1 200") == 0);
  CHECK(Get(server->port(), "/startupz").find("HTTP/1.1 200") == 0);
}

TEST_CASE("A process may have started without being ready", "[metrics]") {
  auto server = *MetricsServer::Start(
      "127.0.0.1:0", std::make_shared<prometheus::Registry>(),
      {.is_ready = [] { return absl::UnavailableError("no room on the disk"); },
       .has_started = [] { return absl::OkStatus(); }});
  CHECK(Get(server->port(), "/readyz").find("HTTP/1.1 503") == 0);
  CHECK(Get(server->port(), "/startupz").find("HTTP/1.1 200") == 0);
}

TEST_CASE("Connections that send nothing keep no probe out", "[metrics]") {
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [] { return absl::OkStatus(); }});
  boost::asio::io_context context;
  std::list<boost::asio::ip::tcp::socket> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(context).connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(server->port())});
  }
  CHECK(Get(server->port(), "/livez").find("HTTP/1.1 200") == 0);
  // The first of them was closed for a later one.
  char byte;
  boost::system::error_code error;
  silent.front().read_some(boost::asio::buffer(&byte, 1), error);
  CHECK(error);
}

TEST_CASE("Other paths, other methods and endless requests are refused", "[metrics]") {
  auto server = *MetricsServer::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>(),
                                      {.is_ready = [] { return absl::OkStatus(); }});
  CHECK(Get(server->port(), "/").find("HTTP/1.1 404") == 0);
  CHECK(Get(server->port(), "/livez?verbose").find("HTTP/1.1 200") == 0);
  CHECK(Get(server->port(), "/x", "POST").find("HTTP/1.1 405") == 0);
  CHECK(Get(server->port(), "/" + std::string(20'000, 'x')).find("HTTP/1.1 431") == 0);
}

TEST_CASE("Values of one name that differ in labels are one family", "[metrics]") {
  FamilyList list;
  list.AddGauge("lathe_test_things", "things", 1, {{"state", "a"}});
  list.AddGauge("lathe_test_things", "things", 2, {{"state", "b"}});
  list.AddProcess();
  const std::vector<prometheus::MetricFamily> families = list.Take();
  REQUIRE(families.size() == 6);
  CHECK(families[0].metric.size() == 2);
  CHECK(families[0].metric[1].label[0].value == "b");
  CHECK(families[0].metric[1].gauge.value == 2);
  for (const prometheus::MetricFamily& family : families) {
    const prometheus::ClientMetric& metric = family.metric[0];
    INFO(family.name);
    CHECK(metric.gauge.value + metric.counter.value > 0);
  }
}

TEST_CASE("A counter is served before it has values", "[metrics]") {
  FamilyList list;
  list.DeclareCounter("lathe_test_things_total", "things");
  const std::vector<prometheus::MetricFamily> families = list.Take();
  REQUIRE(families.size() == 1);
  CHECK(families[0].metric.empty());
  const std::string page = prometheus::TextSerializer().Serialize(families);
  CHECK(page.find("# TYPE lathe_test_things_total counter") != std::string::npos);
}

TEST_CASE("A port in use is unavailable", "[metrics]") {
  auto registry = std::make_shared<prometheus::Registry>();
  auto first =
      *MetricsServer::Start("127.0.0.1:0", registry, {.is_ready = [] { return absl::OkStatus(); }});
  const std::string taken = "127.0.0.1:" + std::to_string(first->port());
  const auto second =
      MetricsServer::Start(taken, registry, {.is_ready = [] { return absl::OkStatus(); }});
  CHECK(second.status().code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lathe
