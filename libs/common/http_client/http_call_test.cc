#include "libs/common/http_client/http_call.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "libs/common/http_client/testing/answering_server.h"

namespace lathe {
namespace {

TEST_CASE("A call with a body is a POST with its headers", "[http]") {
  AnsweringServer server({AnsweringServer::Answer(200, "fine")});
  const auto answer = HttpCall({.url = server.url() + "/v1/traces",
                                .headers = {"Content-Type: application/json", "X-Team: a"},
                                .body = "[1]"});
  REQUIRE(answer.ok());
  CHECK(*answer == "fine");
  const std::string request = server.requests().at(0);
  CHECK(request.find("POST /v1/traces HTTP/1.1\r\n") == 0);
  CHECK(request.find("Content-Type: application/json\r\n") != std::string::npos);
  CHECK(request.find("X-Team: a\r\n") != std::string::npos);
  CHECK(request.substr(request.size() - 3) == "[1]");
}

TEST_CASE("A redirect is an answer and is not followed", "[http]") {
  AnsweringServer server(
      {"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"});
  const auto answer = HttpExchange({.url = server.url()});
  REQUIRE(answer.ok());
  CHECK(answer->status == 302);
  CHECK(HttpCall({.url = server.url()}).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("A call may refuse addresses of this machine and of the link, whatever their name",
          "[http]") {
  AnsweringServer server({AnsweringServer::Answer(200, "fine")});
  const std::string port = server.url().substr(server.url().rfind(':'));
  for (const std::string& host :
       {std::string("127.0.0.1"), std::string("localhost"), std::string("0.0.0.0"),
        std::string("[::1]"), std::string("[::ffff:127.0.0.1]"), std::string("169.254.169.254"),
        std::string("[fe80::1]"), std::string("2130706433")}) {
    INFO(host);
    const auto answer = HttpExchange(
        {.url = "http://" + host + port, .refuses_local = true, .timeout = absl::Seconds(2)});
    CHECK(answer.status().code() == absl::StatusCode::kUnavailable);
  }
  CHECK(server.requests().empty());
  CHECK(HttpExchange({.url = server.url()}).ok());
}

TEST_CASE("A call to a server that does not answer ends after its time", "[http]") {
  AnsweringServer server({""});
  const auto answer = HttpExchange({.url = server.url(), .timeout = absl::Milliseconds(50)});
  CHECK(answer.status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("A call to a server that does not answer can be cancelled", "[http]") {
  AnsweringServer server({""});
  std::atomic<int> num_asked = 0;
  const auto answer = HttpExchange({.url = server.url(),
                                    .timeout = absl::Minutes(10),
                                    .is_cancelled = [&num_asked] { return ++num_asked > 1; }});
  CHECK(answer.status().code() == absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace lathe
