#include "tools/lathe/selftest/api_client.h"

#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"
#include "libs/common/time/clock.h"

namespace lathe::cli {
namespace {

TEST_CASE("A URL names a host and perhaps a port", "[selftest]") {
  CHECK(ParseApiUrl("http://gateway")->Authority() == "gateway:80");
  CHECK(ParseApiUrl("https://api.lathe.example/")->Authority() == "api.lathe.example:443");
  CHECK(ParseApiUrl("http://127.0.0.1:8080")->Authority() == "127.0.0.1:8080");
  CHECK(ParseApiUrl("https://[::1]:8443")->Authority() == "[::1]:8443");
  CHECK(ParseApiUrl("https://[::1]")->host == "::1");
  CHECK(ParseApiUrl("https://a:1")->has_tls);
  CHECK_FALSE(ParseApiUrl("http://a:1")->has_tls);
}

TEST_CASE("What is no URL of an API is refused", "[selftest]") {
  const std::string wrong = GENERATE(as<std::string>{}, "", "gateway:80", "ftp://a", "http://",
                                     "http://a:0", "http://a:x", "http://a/b", "http://a:1/b");
  CHECK(ErrorCode(ParseApiUrl(wrong).status()) == "usage");
}

TEST_CASE("An answer is its JSON, or an error that says what to do", "[selftest]") {
  CHECK(ParseApiAnswer("HTTP/1.1 200 OK\r\n\r\n[1]")->size() == 1);
  CHECK(absl::IsUnavailable(ParseApiAnswer("SSH-2.0-x-and-more").status()));
  const absl::Status busy =
      ParseApiAnswer("HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nX: 1\r\n\r\n{}").status();
  CHECK(absl::IsResourceExhausted(busy));
  CHECK(RetryAfter(busy) == absl::Seconds(7));
  const absl::Status down = ParseApiAnswer("HTTP/1.1 503 Away\r\n\r\n").status();
  CHECK(absl::IsUnavailable(down));
  CHECK(RetryAfter(down) == absl::ZeroDuration());
}

TEST_CASE("An answer without its end is no answer", "[selftest]") {
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]";
  REQUIRE(ParseApiAnswer(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(absl::IsUnavailable(ParseApiAnswer(whole.substr(0, size)).status()));
  }
}

TEST_CASE("A client makes no calls after its end or its deadline", "[selftest]") {
  ApiClient api = *ApiClient::Create(*ParseApiUrl("http://127.0.0.1:1"), "", "key");
  const absl::Time later = SteadyNow() + absl::Minutes(1);
  api.SetLimits(later, [] { return true; });
  CHECK(absl::IsCancelled(api.Get("x", later).status()));
  api.SetLimits(later, [] { return false; });
  CHECK(absl::IsUnavailable(api.Get("x", later).status()));
}

TEST_CASE("The words of a refusal cannot do anything to a terminal", "[selftest]") {
  const absl::Status status =
      ParseApiAnswer("HTTP/1.1 404 Not Found\r\n\r\n{\"error\": {\"message\": \"no \\u001b[2J\"}}")
          .status();
  CHECK(absl::IsNotFound(status));
  CHECK(status.message() == "answered 404: no \\x1b[2J");
}

TEST_CASE("A server that is not there is unavailable, and a bad authority is named", "[selftest]") {
  ApiClient plain = *ApiClient::Create(*ParseApiUrl("http://127.0.0.1:1"), "", "key");
  CHECK(absl::IsUnavailable(plain.Get("x", SteadyNow() + absl::Minutes(1)).status()));
  const auto tls = ApiClient::Create(*ParseApiUrl("https://127.0.0.1:1"), "/no/such/ca", "key");
  CHECK_THAT(std::string(tls.status().message()), Catch::Contains("/no/such/ca"));
}

}  // namespace
}  // namespace lathe::cli
