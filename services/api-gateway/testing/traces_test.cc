// Tests the spans of a gateway's requests over real sockets, in front of a fake engine.
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "libs/common/http_client/testing/answering_server.h"
#include "libs/common/json/json.h"
#include "libs/common/rpc/status.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kBody[] =
    R"({"forward_backward_input":{"data":[],"loss_fn":"cross_entropy"},"model_id":"m","seq_id":1})";

// Fixture: a gateway whose spans a collector receives.
struct Traced {
  FakeEngine engine;
  AnsweringServer collector{std::deque<std::string>{AnsweringServer::Answer(200)}};
  std::optional<Tracer> tracer;
  std::optional<RunningGateway> gateway;

  Traced() {
    tracer.emplace(SpanExporter::Options{.url = collector.url()}, 1);
    gateway.emplace(engine, GatewayOptions{.tracer = &*tracer});
  }

  HttpAnswer Post(const std::string& path, const std::vector<Header>& more = {}) {
    std::vector<Header> headers = {{"content-type", "application/json"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return HttpClient(gateway->port()).Exchange("POST", path, kBody, headers);
  }

  // Returns the spans by name, once the gateway has ended.
  std::map<std::string, Json> Spans() {
    gateway.reset();
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
};

// Returns the header that names `span` as the parent.
std::string HeaderOf(const Json& span) {
  return absl::StrCat("00-", span.at("traceId").get<std::string>(), "-",
                      span.at("spanId").get<std::string>(), "-01");
}

// Calls ForwardBackward over gRPC with kParent.
grpc::Status CallGrpc(RunningGateway& gateway) {
  const auto stub = v1::Engine::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", gateway.ListenGrpc()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(20));
  context.AddMetadata("x-api-key", FakeEngine::kFakeKey);
  context.AddMetadata("traceparent", kParent);
  v1::SubmitResponse response;
  return stub->ForwardBackward(&context, v1::ForwardBackwardRequest(), &response);
}

TEST_CASE("A request's span is a child of the client's and the parent of the engine's",
          "[tracing]") {
  Traced traced;
  REQUIRE(traced.Post("/api/v1/forward_backward", {{"traceparent", kParent}}).status == 200);
  const std::string sent = traced.engine.last_traceparent();
  const auto spans = traced.Spans();
  const Json& span = spans.at("POST /api/v1/forward_backward");
  CHECK(span.at("traceId") == "0af7651916cd43dd8448eb211c80319c");
  CHECK(span.at("parentSpanId") == "b7ad6b7169203331");
  CHECK(sent == HeaderOf(span));
  CHECK(span.at("attributes").dump().find("lathe.request_id") != std::string::npos);
}

TEST_CASE("A forwarded gRPC call carries the gateway's span and not the client's", "[tracing]") {
  Traced traced;
  REQUIRE(CallGrpc(*traced.gateway).ok());
  const std::string sent = traced.engine.last_traceparent();
  const auto spans = traced.Spans();
  const Json& span = spans.at("lathe.v1.Engine/ForwardBackward");
  CHECK(span.at("parentSpanId") == "b7ad6b7169203331");
  CHECK(sent == HeaderOf(span));
}

TEST_CASE("Requests of strangers, probes and unrecorded traces have no spans", "[tracing]") {
  Traced traced;
  CHECK(traced.Post("/api/v1/forward_backward", {{"x-api-key", "tml-wrong"}}).status == 401);
  CHECK(HttpClient(traced.gateway->port()).Exchange("GET", "/api/v1/healthz").status == 200);
  std::string unrecorded = kParent;
  unrecorded.back() = '0';
  CHECK(traced.Post("/api/v1/forward_backward", {{"traceparent", unrecorded}}).status == 200);
  // The engine learns that it is not to record either.
  CHECK(traced.engine.last_traceparent().ends_with("-00"));
  CHECK(traced.Spans().empty());
}

TEST_CASE("Without a tracer a client's traceparent goes nowhere", "[tracing]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const auto answer =
      HttpClient(gateway.port())
          .Exchange("POST", "/api/v1/forward_backward", kBody,
                    {{"content-type", "application/json"}, {"traceparent", kParent}});
  CHECK(answer.status == 200);
  CHECK(engine.last_traceparent().empty());
  CHECK(CallGrpc(gateway).ok());
  CHECK(engine.last_traceparent().empty());
}

}  // namespace
}  // namespace lathe::gateway
