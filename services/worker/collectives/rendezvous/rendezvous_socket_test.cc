#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

#include <catch2/catch.hpp>

namespace lathe::worker {
namespace {

TEST_CASE("the rendezvous is at the address from which the engine is reached", "[worker]") {
  const std::string engine =
      GENERATE(as<std::string>(), "unix:/run/worker.sock", "127.0.0.1:4000", "localhost:4000");
  const auto socket = OpenRendezvousSocket("", engine);
  REQUIRE(socket.ok());
  CHECK((socket->address() == "127.0.0.1" || socket->address() == "::1"));
  CHECK(socket->port() != 0);
}

TEST_CASE("the rendezvous is at the configured address", "[worker]") {
  CHECK(OpenRendezvousSocket("127.0.0.2", "unix:/run/worker.sock").value().address() ==
        "127.0.0.2");
  CHECK(OpenRendezvousSocket("lo", "10.0.0.1:4000").value().address() == "127.0.0.1");
}

TEST_CASE("an address that is not this machine's is refused", "[worker]") {
  CHECK(absl::IsInvalidArgument(OpenRendezvousSocket("0.0.0.0", "unix:/run/worker.sock").status()));
  for (const std::string place : {"no-such-if", "192.0.2.1"}) {
    const absl::Status status = OpenRendezvousSocket(place, "unix:/run/worker.sock").status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith("--rendezvous " + place + ": "));
    CHECK_THAT(std::string(status.message()), Catch::Contains("127.0.0.1 (lo)"));
  }
}

}  // namespace
}  // namespace lathe::worker
