#include "services/api-gateway/http/connection_slots.h"

#include <catch2/catch.hpp>

namespace lathe::gateway {
namespace {

using boost::asio::ip::make_address;

TEST_CASE("ConnectionSlots: an address gets as many as it may, and gets them back", "[http]") {
  ConnectionSlots slots(2);
  auto first = slots.Take(make_address("10.0.0.1"));
  const auto second = slots.Take(make_address("10.0.0.1"));
  CHECK(second);
  CHECK_FALSE(slots.Take(make_address("10.0.0.1")));
  CHECK(slots.Take(make_address("10.0.0.2")));
  first.reset();
  CHECK(slots.Take(make_address("10.0.0.1")));
}

TEST_CASE("ConnectionSlots: addresses of one IPv6 /64 count together", "[http]") {
  ConnectionSlots slots(1);
  const auto first = slots.Take(make_address("2001:db8::1"));
  CHECK_FALSE(slots.Take(make_address("2001:db8::ffff:2")));
  CHECK(slots.Take(make_address("2001:db8:0:1::1")));
}

TEST_CASE("ConnectionSlots: 0 is no bound", "[http]") {
  ConnectionSlots slots(0);
  const auto first = slots.Take(make_address("10.0.0.1"));
  CHECK(first);
  CHECK(slots.Take(make_address("10.0.0.1")));
}

}  // namespace
}  // namespace lathe::gateway
