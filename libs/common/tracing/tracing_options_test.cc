#include "libs/common/tracing/tracing_options.h"

#include <catch2/catch.hpp>
#include <string>

#include "libs/common/http_client/testing/answering_server.h"

namespace lathe {
namespace {

TEST_CASE("Without an endpoint there is no tracer", "[tracing]") {
  CHECK(CheckTracingOptions({}).ok());
  CHECK(MakeTracer({}, "lathe-engine") == nullptr);
}

TEST_CASE("An endpoint is checked", "[tracing]") {
  CHECK(CheckTracingOptions({.endpoint = "http://127.0.0.1:4318"}).ok());
  CHECK(CheckTracingOptions({.endpoint = "http://[::1]:4318"}).ok());
  CHECK(CheckTracingOptions({.endpoint = "http://localhost/otlp/"}).ok());
  CHECK(CheckTracingOptions({.endpoint = "https://collector.example"}).ok());
  CHECK(CheckTracingOptions({.endpoint = "http://10.0.0.1:4318", .insecure_i_know = true}).ok());
  const std::string bad =
      GENERATE(as<std::string>(), "collector:4318", "ftp://127.0.0.1", "http://", "http:///x",
               "http://:4318", "https://user@host", "https://host?x", "http://10.0.0.1:4318",
               "http://127.0.0.1.example:4318");
  CHECK(absl::IsInvalidArgument(CheckTracingOptions({.endpoint = bad})));
}

TEST_CASE("A ratio lies between 0 and 1", "[tracing]") {
  CHECK(CheckTracingOptions({.sample_ratio = 0}).ok());
  CHECK_FALSE(CheckTracingOptions({.sample_ratio = 1.01}).ok());
  CHECK_FALSE(CheckTracingOptions({.sample_ratio = -0.01}).ok());
}

TEST_CASE("Headers are read, and an error does not show them", "[tracing]") {
  CHECK(CheckTracingOptions({.headers = "authorization=Bearer a=b, x-team = c"}).ok());
  for (const char* bad : {"secret-without-equals", "a=1,=secret", "a b=secret", "a=sec\x01ret"}) {
    const absl::Status status = CheckTracingOptions({.headers = bad});
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find("secret") == std::string::npos);
    CHECK(std::string(status.message()).find("ret") == std::string::npos);
  }
}

TEST_CASE("A tracer sends to the endpoint's path with the headers", "[tracing]") {
  AnsweringServer server({AnsweringServer::Answer(200)});
  {
    const auto tracer = MakeTracer(
        {.endpoint = server.url() + "/otlp/", .headers = "Authorization=Bearer a=b"}, "lathe-x");
    Span span{.context = tracer->Begin(""), .name = "one"};
    tracer->Record(span);
    span.context.is_sampled = false;
    span.name = "two";
    tracer->Record(span);
  }
  REQUIRE(server.requests().size() == 1);
  const std::string request = server.requests().at(0);
  CHECK(request.find("POST /otlp/v1/traces HTTP/1.1\r\n") == 0);
  CHECK(request.find("Authorization: Bearer a=b\r\n") != std::string::npos);
  CHECK(request.find("\"lathe-x\"") != std::string::npos);
  CHECK(request.find("\"one\"") != std::string::npos);
  CHECK(request.find("\"two\"") == std::string::npos);
}

}  // namespace
}  // namespace lathe
