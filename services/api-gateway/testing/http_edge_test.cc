// Tests malformed and abusive HTTP over real sockets.
#include <zstd.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "services/api-gateway/json/parse_json.h"
#include "services/api-gateway/testing/checks.h"
#include "services/api-gateway/testing/fake_engine.h"
#include "services/api-gateway/testing/http_client.h"
#include "services/api-gateway/testing/running_gateway.h"

namespace lathe::gateway {
namespace {

constexpr char kHead[] = "POST /api/v1/telemetry HTTP/1.1\r\nHost: x\r\nX-API-Key: tml-fake\r\n";

HttpAnswer SendRaw(const RunningGateway& gateway, const std::string& bytes) {
  HttpClient client(gateway.port());
  client.SendRaw(bytes);
  return client.Receive();
}

TEST_CASE("Malformed heads are refused with a body", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const auto lines = GENERATE(as<std::string>(),                                      //
                              "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",  //
                              "Content-Length: 5\r\nContent-Length: 6\r\n",           //
                              "Content-Length: -1\r\n",                               //
                              "Content-Length: 99999999999999999999\r\n",             //
                              "Transfer-Encoding: gzip, chunked\r\n",                 //
                              "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                              "X-Folded: a\r\n b\r\n",  //
                              "No colon at all\r\n");
  INFO(lines);
  const HttpAnswer answer = SendRaw(gateway, absl::StrCat(kHead, lines, "\r\nhello"));
  CHECK(answer.status == 400);
  CHECK(CodeOf(answer) == "malformed_http");
  CHECK(answer.headers.at("connection") == "close");
  CheckAlive(gateway);
}

TEST_CASE("Heads over 8 KiB or 100 fields are refused with 431", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  std::string many = kHead;
  for (int i = 0; i < 101; ++i) absl::StrAppend(&many, "X", i, ": 1\r\n");
  CHECK(SendRaw(gateway, many + "\r\n").status == 431);
  CHECK(SendRaw(gateway, absl::StrCat(kHead, "X: ", std::string(9000, 'x'), "\r\n\r\n")).status ==
        431);
  CHECK(SendRaw(gateway, absl::StrCat(kHead, "X: ", std::string(40'000, 'x'))).status == 431);
  CheckAlive(gateway);
}

TEST_CASE("Chunked bodies are read, and broken ones do no harm", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const std::string chunked = absl::StrCat(kHead, "Transfer-Encoding: chunked\r\n\r\n");
  CHECK(SendRaw(gateway, chunked + "5\r\nhello\r\n0\r\n\r\n").status == 200);
  CHECK(SendRaw(gateway, chunked + "-2\r\nhello\r\n0\r\n\r\n").status == 400);
  CHECK(SendRaw(gateway, chunked + "zz\r\n").status == 400);
  HttpClient client(gateway.port());
  try {
    client.SendRaw(chunked + "5\r\nhello\r\n0\r\nX: " + std::string(70'000, 'x') + "\r\n\r\n");
    client.Receive();
  } catch (const boost::system::system_error&) {
    // The server may also close the connection without an answer.
  }
  CheckAlive(gateway);
}

TEST_CASE("A body over its limit is refused before and while it is read", "[gateway]") {
  FakeEngine engine;
  GatewayOptions options;
  options.limits.max_body_bytes = 100'000;
  RunningGateway gateway(engine, options);
  const HttpAnswer declared =
      SendRaw(gateway, absl::StrCat(kHead, "Content-Length: 100001\r\n\r\n"));
  CHECK(declared.status == 413);
  CHECK(CodeOf(declared) == "body_too_large");
  std::string chunks = absl::StrCat(kHead, "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 101; ++i) absl::StrAppend(&chunks, "3e8\r\n", std::string(1000, 'x'), "\r\n");
  CHECK(SendRaw(gateway, chunks).status == 413);
  CHECK(SendRaw(gateway,
                absl::StrCat(kHead, "Content-Length: 100000\r\n\r\n", std::string(100'000, 'x')))
            .status == 200);
}

TEST_CASE("Content encodings other than zstd are refused by name", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const auto with = [&client](const std::string& encoding, const std::string& body) {
    return client.Exchange("POST", "/api/v1/telemetry", body, {{"Content-Encoding", encoding}});
  };
  CHECK(with("identity", "{}").status == 200);
  CHECK(with("gzip", "{}").status == 415);
  CHECK(with("zstd, zstd", "{}").status == 415);
  CHECK(CodeOf(with("zstd", "{}")) == "bad_compression");
  std::string frame(200, '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), "{}", 2, 3));
  CHECK(with("zstd", frame).status == 200);
  std::string bomb(1 << 20, '\0');
  const std::string zeros(64 << 20, '\0');
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 3));
  CHECK(CodeOf(with("zstd", bomb)) == "decompressed_too_large");
}

TEST_CASE("Unknown routes, methods and paths get different errors", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  CHECK(client.Post("/api/v1/save_weights_inside", "{}").status == 404);
  const HttpAnswer method = client.Exchange("GET", "/api/v1/optim_step");
  CHECK(method.status == 405);
  CHECK(method.headers.at("allow") == "POST");
  CHECK(CodeOf(client.Exchange("GET", "/api/v1/sessions/%2e%2e%2f")) == "bad_path");
  CHECK(
      client.Exchange("POST", "/api/v1/get_info", "{}", {{"Content-Type", "text/plain"}}).status ==
      415);
}

TEST_CASE("A refused request with a short body leaves the connection usable", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  for (int i = 0; i < 3; ++i) {
    CHECK(client
              .Exchange("POST", "/api/v1/get_info", std::string(5000, 'x'),
                        {{"x-api-key", "tml-wrong"}})
              .status == 401);
  }
  CHECK(client.Exchange("GET", "/api/v1/healthz").status == 200);
}

TEST_CASE("A refused request with a long body gets its answer before the end", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const HttpAnswer answer =
      client.Exchange("POST", "/api/v1/forward_backward", std::string(5'000'000, 'x'),
                      {{"x-api-key", "tml-wrong"}});
  CHECK(answer.status == 401);
  CHECK(answer.headers.at("connection") == "close");
}

TEST_CASE("Expect: 100-continue is answered once the request may come", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  client.SendRaw(absl::StrCat(kHead, "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  CHECK(client.Receive().status == 100);
  client.SendRaw("{}");
  CHECK(client.Receive().status == 200);
}

TEST_CASE("Pipelined requests are answered in order, bytes trickling or not", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  HttpClient client(gateway.port());
  const std::string one = absl::StrCat(kHead, "Content-Length: 2\r\n\r\n{}");
  client.SendRaw(one + "GET /api/v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n" + one);
  CHECK(client.Receive().body == R"({"status":"accepted"})");
  CHECK(client.Receive().body == R"({"status":"ok"})");
  CHECK(client.Receive().body == R"({"status":"accepted"})");
  for (const char byte : one) client.SendRaw(std::string(1, byte));
  CHECK(client.Receive().status == 200);
}

}  // namespace
}  // namespace lathe::gateway
