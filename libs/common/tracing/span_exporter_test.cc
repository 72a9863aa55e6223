#include "libs/common/tracing/span_exporter.h"

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libs/common/http_client/testing/answering_server.h"

namespace lathe {
namespace {

SpanExporter::Options OptionsFor(const std::string& url) {
  return {.url = url + "/v1/traces",
          .headers = {"X-Team: a"},
          .resource = {.service = "test", .version = "1", .instance_id = "2"},
          .max_waiting = 8,
          .max_batch = 4,
          .period = absl::Milliseconds(5),
          .call_timeout = absl::Seconds(5),
          .first_pause = absl::Milliseconds(1),
          .longest_pause = absl::Milliseconds(2),
          .batch_patience = absl::Seconds(30),
          .stop_patience = absl::Seconds(5)};
}

Span Named(const std::string& name) {
  return {.context = {.trace_id_high = 1, .trace_id_low = 2, .span_id = 3, .is_sampled = true},
          .name = name};
}

void AwaitTrue(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(condition());
}

int64_t NumSpansIn(const std::vector<std::string>& requests) {
  int64_t num_spans = 0;
  for (const std::string& request : requests) {
    for (size_t at = 0; (at = request.find("\"traceId\"", at)) != std::string::npos; ++at) {
      ++num_spans;
    }
  }
  return num_spans;
}

TEST_CASE("Spans reach the collector in batches with the headers", "[tracing]") {
  AnsweringServer server({AnsweringServer::Answer(200)});
  {
    SpanExporter exporter(OptionsFor(server.url()));
    for (int i = 0; i < 8; ++i) exporter.Record(Named(absl::StrCat("span", i)));
    AwaitTrue([&] { return exporter.counts().num_sent == 8; });
    CHECK(exporter.counts().num_dropped == 0);
  }
  const std::vector<std::string> requests = server.requests();
  CHECK(NumSpansIn(requests) == 8);
  CHECK(requests.at(0).find("POST /v1/traces HTTP/1.1\r\n") == 0);
  CHECK(requests.at(0).find("Content-Type: application/json\r\n") != std::string::npos);
  CHECK(requests.at(0).find("X-Team: a\r\n") != std::string::npos);
}

TEST_CASE("A batch that the collector cannot take now is sent again, once", "[tracing]") {
  const int status = GENERATE(429, 502, 503, 504);
  AnsweringServer server({AnsweringServer::Answer(status), AnsweringServer::Answer(200)});
  SpanExporter exporter(OptionsFor(server.url()));
  exporter.Record(Named("span"));
  AwaitTrue([&] { return exporter.counts().num_sent == 1; });
  CHECK(server.requests().size() == 2);
}

TEST_CASE("A batch that the collector refuses is dropped and counted", "[tracing]") {
  const int status = GENERATE(302, 400, 401, 500);
  AnsweringServer server({AnsweringServer::Answer(status)});
  SpanExporter exporter(OptionsFor(server.url()));
  exporter.Record(Named("span"));
  AwaitTrue([&] { return exporter.counts().num_dropped == 1; });
  CHECK(server.requests().size() == 1);
  CHECK(exporter.counts().num_sent == 0);
}

TEST_CASE("Spans beyond the queue are dropped and counted while a collector hangs", "[tracing]") {
  AnsweringServer server({""});
  SpanExporter::Options options = OptionsFor(server.url());
  options.stop_patience = absl::ZeroDuration();
  const auto began_at = std::chrono::steady_clock::now();
  {
    SpanExporter exporter(options);
    exporter.Record(Named("first"));
    AwaitTrue([&] { return server.requests().size() == 1; });
    for (int i = 0; i < 20; ++i) exporter.Record(Named("span"));
    CHECK(exporter.counts().num_dropped == 12);
  }
  // The end waits neither for the call's time-out nor for the spans that are left.
  CHECK(std::chrono::steady_clock::now() - began_at < std::chrono::seconds(4));
}

TEST_CASE("A batch is dropped once its patience is over", "[tracing]") {
  SpanExporter::Options options = OptionsFor("http://127.0.0.1:1");
  options.batch_patience = absl::Milliseconds(20);
  SpanExporter exporter(options);
  exporter.Record(Named("span"));
  AwaitTrue([&] { return exporter.counts().num_dropped == 1; });
}

TEST_CASE("Spans that wait at the end are sent", "[tracing]") {
  AnsweringServer server({AnsweringServer::Answer(200)});
  SpanExporter::Options options = OptionsFor(server.url());
  options.period = absl::Minutes(10);
  { SpanExporter(options).Record(Named("last")); }
  CHECK(NumSpansIn(server.requests()) == 1);
}

}  // namespace
}  // namespace lathe
