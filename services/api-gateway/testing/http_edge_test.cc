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

TEST_CASE("A route without a body refuses one and leaves it unread", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const std::vector<Header> zstd = {{"Content-Encoding", "zstd"}, {"x-api-key", ""}};
  // The body is not even zstd, which only a reader of the body would notice.
  const HttpAnswer get = HttpClient(gateway.port()).Exchange("GET", "/livez", "body", zstd);
  CHECK(get.status == 400);
  CHECK(CodeOf(get) == "body_not_allowed");
  CHECK(get.body.find("GET /livez takes no body") != std::string::npos);
  HttpClient client(gateway.port());
  CHECK(CodeOf(client.Exchange("DELETE", "/api/v1/auth/apikey/me", "{}")) == "body_not_allowed");
  CHECK(client.Exchange("GET", "/api/v1/healthz").status == 200);
  client.SendRaw("GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  CHECK(CodeOf(client.Receive()) == "body_not_allowed");
  CheckAlive(gateway);
}

TEST_CASE("Without a known key a body has at most 64 KiB while the engine is away", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  const auto post = [&gateway](const std::string& key, const std::string& body,
                               const std::string& encoding) {
    return HttpClient(gateway.port())
        .Exchange("POST", "/api/v1/telemetry", body,
                  {{"x-api-key", key}, {"Content-Encoding", encoding}});
  };
  const std::string large(100'000, ' ');
  std::string frame(200, '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), large.data(), large.size(), 3));
  CHECK(post(FakeEngine::kFakeKey, large, "identity").status == 200);
  engine.StopServing();
  CHECK(post(FakeEngine::kFakeKey, large, "identity").status == 200);
  CHECK(CodeOf(post("tml-any", large, "identity")) == "body_too_large");
  CHECK(CodeOf(post("tml-any", frame, "zstd")) == "decompressed_too_large");
  CHECK(post("tml-any", large.substr(0, 60'000), "identity").status == 200);
}

TEST_CASE("A body inflates at most to the bound of its route", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine);
  std::string text = R"({"model_id": ")";
  for (int i = 0; i < (2 << 20); ++i) text += static_cast<char>('a' + i * i % 25);
  text += "\"}";
  std::string frame(text.size(), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 3));
  REQUIRE(frame.size() < (1 << 20));
  HttpClient client(gateway.port());
  const HttpAnswer answer =
      client.Exchange("POST", "/api/v1/get_info", frame,
                      {{"Content-Encoding", "zstd"}, {"Content-Type", "application/json"}});
  CHECK(answer.status == 413);
  CHECK(CodeOf(answer) == "decompressed_too_large");
  CHECK(answer.body.find("1048576") != std::string::npos);
  CHECK(answer.body.find("POST /api/v1/get_info") != std::string::npos);
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

TEST_CASE("Large bodies are read whatever their route and encoding", "[gateway]") {
  FakeEngine engine;
  RunningGateway gateway(engine, HoldFor(absl::Milliseconds(50)));
  HttpClient client(gateway.port());
  const std::string padding(1 << 19, ' ');
  std::string tokens = "1";
  for (int i = 1; i < 200'000; ++i) tokens += ",1";
  const HttpAnswer sample = client.Post(
      "/api/v1/asample",
      absl::StrCat(R"({"num_samples":1,"prompt":{"chunks":[{"type":"encoded_text","tokens":[)",
                   tokens, R"(]}]},"sampling_params":{},"sampling_session_id":"s","seq_id":4})"));
  CHECK(sample.status == 200);
  CHECK(engine.last_sample().prompt(0).tokens().size() == 800'000);
  const HttpAnswer poll = client.Post(
      "/api/v1/retrieve_futures",
      absl::StrCat(padding, R"({"target":{"type":"sampling_session","sampling_session_id":"s1"},)"
                            R"("prev_cursor":4})"));
  CHECK(poll.status == 200);
  const std::string body = absl::StrCat(
      R"({"forward_input":{"loss_fn":"ppo","data":[]},"model_id":"m","seq_id":1})", padding);
  std::string frame(body.size(), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), body.data(), body.size(), 3));
  const HttpAnswer training =
      client.Exchange("POST", "/api/v1/forward", frame,
                      {{"Content-Type", "application/json"}, {"Content-Encoding", "zstd"}});
  CHECK(training.status == 200);
  CHECK(engine.last_forward_backward().model_id() == "m");
}

}  // namespace
}  // namespace lathe::gateway
