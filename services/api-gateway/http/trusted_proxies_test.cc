#include "services/api-gateway/http/trusted_proxies.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace lathe::gateway {
namespace {

using boost::asio::ip::make_address;

TrustedProxies Proxies() {
  return *TrustedProxies::Parse({"10.0.0.0/8", "192.168.1.1", "fd00::/8"});
}

// Returns the client of a request from `peer` with these X-Forwarded-For headers.
std::string ClientOf(const std::string& peer, const std::vector<std::string>& forwarded) {
  Request request;
  for (const std::string& value : forwarded) request.headers.push_back({"X-Forwarded-For", value});
  Proxies().Apply(make_address(peer), request);
  return request.peer.to_string();
}

TEST_CASE("Only a trusted proxy may name another client", "[trusted_proxies]") {
  CHECK(ClientOf("10.1.2.3", {"8.8.8.8"}) == "8.8.8.8");
  CHECK(ClientOf("192.168.1.1", {"8.8.8.8"}) == "8.8.8.8");
  CHECK(ClientOf("::ffff:10.1.2.3", {"8.8.8.8"}) == "8.8.8.8");
  CHECK(ClientOf("fd00::1", {"[2001:db8:1:2:3::4]:99"}) == "2001:db8:1:2::");
  CHECK(ClientOf("192.168.1.2", {"8.8.8.8"}) == "192.168.1.2");
  CHECK(ClientOf("11.0.0.1", {"8.8.8.8"}) == "11.0.0.1");
}

TEST_CASE("A client cannot choose its address by sending the header itself", "[trusted_proxies]") {
  CHECK(ClientOf("10.1.2.3", {"1.1.1.1, 8.8.8.8"}) == "8.8.8.8");
  CHECK(ClientOf("10.1.2.3", {"1.1.1.1", "8.8.8.8:4711 , 10.9.9.9"}) == "8.8.8.8");
  CHECK(ClientOf("10.1.2.3", {"10.7.7.7, 10.8.8.8"}) == "10.7.7.7");
  CHECK(ClientOf("10.1.2.3", {"1.1.1.1, nonsense"}) == "10.1.2.3");
  CHECK(ClientOf("10.1.2.3", {}) == "10.1.2.3");
}

TEST_CASE("A trusted proxy says whether its client uses TLS", "[trusted_proxies]") {
  Request request;
  request.headers = {{"X-Forwarded-Proto", "https"}};
  Proxies().Apply(make_address("11.0.0.1"), request);
  CHECK_FALSE(request.is_tls);
  Proxies().Apply(make_address("10.0.0.1"), request);
  CHECK(request.is_tls);
}

TEST_CASE("What is neither an address nor a network is refused", "[trusted_proxies]") {
  for (const char* item : {"10.0.0.0/33", "ingress", "fd00::/129", "10.0.0/8", ""}) {
    const absl::Status status = TrustedProxies::Parse({item}).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), item));
  }
}

}  // namespace
}  // namespace lathe::gateway
