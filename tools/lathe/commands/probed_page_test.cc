#include "tools/lathe/commands/probed_page.h"

#include <catch2/catch.hpp>
#include <string>

#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

std::string Found(const PageOptions& options, const std::string& program = "") {
  const auto page = FindPage(options, program);
  return page.ok() ? page->Url() : ErrorCode(page.status());
}

TEST_CASE("The only page is found, wherever it listens", "[probe]") {
  CHECK(Found({.engine_page = "0.0.0.0:9091"}) == "http://127.0.0.1:9091");
  CHECK(Found({.worker_page = "[::]:9092"}) == "http://[::1]:9092");
  CHECK(Found({.up_page = "10.0.0.2:9090", .up_api = "0.0.0.0:8080"}) == "http://10.0.0.2:9090");
}

TEST_CASE("Of several pages one is named", "[probe]") {
  const PageOptions options{.gateway_page = "0.0.0.0:1", .engine_page = "0.0.0.0:2"};
  CHECK(Found(options) == "usage");
  CHECK(Found(options, "gateway") == "http://127.0.0.1:1");
  CHECK(Found(options, "engine") == "http://127.0.0.1:2");
  CHECK(Found(options, "worker") == "usage");
}

TEST_CASE("Without a page the API answers, unless it speaks TLS", "[probe]") {
  CHECK(Found({}) == "http://127.0.0.1:8080");
  CHECK(Found({.gateway_api = "0.0.0.0:80"}) == "http://127.0.0.1:80");
  CHECK(Found({.up_api = "127.0.0.1:81"}, "up") == "http://127.0.0.1:81");
  CHECK(Found({.gateway_api = "0.0.0.0:443", .gateway_cert = "api.crt"}) == "usage");
}

TEST_CASE("A port that the process chooses is not guessed", "[probe]") {
  CHECK(Found({.engine_page = "127.0.0.1:0"}) == "usage");
}

TEST_CASE("A URL names an address and may name a path", "[probe]") {
  const auto page = ParseProbeUrl("http://localhost:9090");
  REQUIRE(page.ok());
  CHECK(page->address.Url() == "http://127.0.0.1:9090");
  CHECK(page->path.empty());
  CHECK(ParseProbeUrl("http://[::1]:9090/readyz?standby=ok")->path == "/readyz?standby=ok");
  const std::string wrong = GENERATE("127.0.0.1:9090", "https://127.0.0.1:9090", "http://host:1",
                                     "http://127.0.0.1", "http://127.0.0.1:x/livez");
  CHECK(ErrorCode(ParseProbeUrl(wrong).status()) == "usage");
}

}  // namespace
}  // namespace lathe::cli
