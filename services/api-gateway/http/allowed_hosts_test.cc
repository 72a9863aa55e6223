#include "services/api-gateway/http/allowed_hosts.h"

#include <catch2/catch.hpp>

#include "libs/common/errors.h"

namespace lathe::gateway {
namespace {

absl::Status Check(const AllowedHosts& hosts, const std::string& host) {
  Request request;
  request.headers = {{"Host", host}};
  return hosts.Check(request);
}

TEST_CASE("A server on loopback answers to the names of loopback", "[http]") {
  const AllowedHosts hosts = *AllowedHosts::For("127.0.0.1:8080", {});
  const auto own =
      GENERATE(as<std::string>(), "127.0.0.1", "127.0.0.1:8080", "127.9.9.9:1", "localhost",
               "LocalHost:8080", "localhost.", "me.localhost:80", "[::1]", "[::1]:8080");
  CHECK(Check(hosts, own).ok());
  const auto foreign = GENERATE(as<std::string>(), "evil.example", "evil.example:8080",
                                "127.0.0.1.evil.example", "localhost.evil.example", "evillocalhost",
                                "10.0.0.1", "[::2]", ":8080", "[::1", "[");
  const absl::Status refusal = Check(hosts, foreign);
  CHECK(refusal.code() == absl::StatusCode::kPermissionDenied);
  CHECK(ErrorCode(refusal) == "bad_origin");
  CHECK(ErrorField(refusal) == "Host");
  CHECK(std::string(refusal.message()).find("'" + foreign + "'") != std::string::npos);
}

TEST_CASE("Names that are configured are answered to besides", "[http]") {
  const AllowedHosts hosts =
      *AllowedHosts::For("[::1]:8080", {"Lathe.Example", "https://proxy.example:8443/"});
  for (const char* host : {"lathe.example:80", "proxy.example", "localhost"}) {
    CHECK(Check(hosts, host).ok());
  }
  CHECK_FALSE(Check(hosts, "other.example").ok());
}

TEST_CASE("The public URL's name is answered to, and limits nothing", "[http]") {
  const std::string url = "https://lathe.example:8443";
  CHECK(Check(*AllowedHosts::For("127.0.0.1:1", {}, url), "lathe.example:8443").ok());
  CHECK_FALSE(Check(*AllowedHosts::For("127.0.0.1:1", {}, url), "other.example").ok());
  CHECK(Check(*AllowedHosts::For("0.0.0.0:1", {}, url), "other.example").ok());
}

TEST_CASE("A server on a public address answers to any name unless names are configured",
          "[http]") {
  CHECK(Check(*AllowedHosts::For("0.0.0.0:8080", {}), "any.example").ok());
  const AllowedHosts named = *AllowedHosts::For("0.0.0.0:8080", {"lathe.example"});
  CHECK(Check(named, "lathe.example:8080").ok());
  CHECK_FALSE(Check(named, "any.example").ok());
  // Health probes use these hosts, and no page of another site can.
  for (const char* host : {"localhost", "127.0.0.1:8080", "10.0.0.7:8080", "[2001:db8::1]"}) {
    CHECK(Check(named, host).ok());
  }
  CHECK(Check(*AllowedHosts::For("127.0.0.1:1", {"*"}), "any.example").ok());
  CHECK(named.Check(Request()).ok());
}

TEST_CASE("What is no name is a configuration error", "[http]") {
  const auto name = GENERATE(as<std::string>(), "", "https://", ":8080", ".");
  CHECK(ErrorCode(AllowedHosts::For("127.0.0.1:1", {name}).status()) == "configuration");
}

}  // namespace
}  // namespace lathe::gateway
