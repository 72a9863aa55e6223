#include "services/engine/runtime/request_spans.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>

#include "libs/common/http_client/testing/answering_server.h"
#include "libs/common/json/json.h"

namespace lathe::engine {
namespace {

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// Returns the spans that `record` leaves at a collector, by name.
std::map<std::string, Json> Recorded(const std::function<void(Tracer&)>& record) {
  AnsweringServer collector({AnsweringServer::Answer(200)});
  std::optional<Tracer> tracer;
  tracer.emplace(SpanExporter::Options{.url = collector.url()}, 1);
  record(*tracer);
  tracer.reset();
  std::map<std::string, Json> spans;
  for (const std::string& request : collector.requests()) {
    const auto body = lathe::ParseJson(request.substr(request.find("\r\n\r\n") + 4), "spans");
    REQUIRE(body.ok());
    for (const Json& span : body->at("resourceSpans")[0].at("scopeSpans")[0].at("spans")) {
      spans[span.at("name")] = span;
    }
  }
  return spans;
}

std::map<std::string, std::string> AttributesOf(const Json& span) {
  std::map<std::string, std::string> attributes;
  for (const Json& one : span.at("attributes")) {
    const Json& value = one.at("value");
    attributes[one.at("key")] =
        value.contains("intValue") ? value.at("intValue") : value.at("stringValue");
  }
  return attributes;
}

RequestSpan Completed(const Tracer& tracer) {
  RequestSpan request;
  request.request_id = "r1";
  request.owner_id = "s:train:0";
  request.tenant_id = "t1";
  request.seq_id = 3;
  request.group = "default";
  request.num_dispatches = 1;
  request.num_batch_requests = 2;
  request.accepted_at = 10;
  request.durable_at = 11;
  request.dispatched_at = 12;
  request.executed_at = 13;
  request.completed_at = 14;
  request.context = tracer.Begin(kParent);
  return request;
}

std::string Times(const Json& span) {
  return span.at("startTimeUnixNano").get<std::string>() + "-" +
         span.at("endTimeUnixNano").get<std::string>();
}

TEST_CASE("A request's span has its stages as children and its sender as parent", "[tracing]") {
  const auto spans = Recorded([](Tracer& tracer) {
    RequestSpan request = Completed(tracer);
    RecordRequest(tracer, request, "tiny");
    request.delivered_at = 20;
    RecordDelivery(tracer, request);
  });
  const Json& whole = spans.at("forward_backward");
  CHECK(whole.at("traceId") == "0af7651916cd43dd8448eb211c80319c");
  CHECK(whole.at("parentSpanId") == "b7ad6b7169203331");
  CHECK(Times(whole) == "10-14");
  CHECK_FALSE(whole.contains("status"));
  CHECK(AttributesOf(whole) ==
        std::map<std::string, std::string>{{"lathe.tenant_id", "t1"},
                                           {"lathe.model_id", "s:train:0"},
                                           {"lathe.request_id", "r1"},
                                           {"lathe.operation", "forward_backward"},
                                           {"lathe.seq_id", "3"},
                                           {"lathe.outcome", "ok"},
                                           {"lathe.base_model", "tiny"},
                                           {"lathe.group", "default"}});
  const std::map<std::string, std::string> stages = {{"accept", "10-11"},
                                                     {"queue", "11-12"},
                                                     {"execute", "12-13"},
                                                     {"commit", "13-14"},
                                                     {"deliver", "14-20"}};
  REQUIRE(spans.size() == 1 + stages.size());
  for (const auto& [name, times] : stages) {
    CHECK(Times(spans.at(name)) == times);
    CHECK(spans.at(name).at("parentSpanId") == whole.at("spanId"));
    CHECK(spans.at(name).at("traceId") == whole.at("traceId"));
  }
}

TEST_CASE("Stages that did not take place have no spans", "[tracing]") {
  const auto spans = Recorded([](Tracer& tracer) {
    RequestSpan request = Completed(tracer);
    request.dispatched_at = request.executed_at = 0;
    request.owner_id = "s:sample:0";
    request.outcome = Outcome::kServerError;
    RecordRequest(tracer, request, "");
  });
  CHECK(spans.size() == 2);
  CHECK(spans.contains("accept"));
  CHECK(spans.at("forward_backward").at("status").at("code") == 2);
  CHECK(AttributesOf(spans.at("forward_backward")).at("lathe.sampling_session_id") == "s:sample:0");
}

TEST_CASE("A request that is not sampled has no spans", "[tracing]") {
  const auto spans = Recorded([](Tracer& tracer) {
    RequestSpan request = Completed(tracer);
    request.context.is_sampled = false;
    RecordRequest(tracer, request, "tiny");
    RecordDelivery(tracer, request);
  });
  CHECK(spans.empty());
}

}  // namespace
}  // namespace lathe::engine
