#include "services/worker/collectives/rendezvous/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

namespace lathe::worker {
namespace {

int OptionOf(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  getsockopt(fd, level, option, &value, &size);
  return value;
}

TEST_CASE("a connection whose other end is silent fails by itself", "[worker]") {
  ListeningSocket place = ListeningSocket::Open("127.0.0.1").value();
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(place.port())};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int ours = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(connect(ours, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  const int listener = place.Release();
  const int theirs = accept(listener, nullptr, nullptr);
  REQUIRE(theirs >= 0);

  KeepConnectionsAlive(absl::Seconds(15));
  for (const int fd : {ours, theirs}) {
    CHECK(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 15000);
    CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 5);
    CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 5);
  }
  for (const int fd : {ours, theirs, listener}) close(fd);
}

}  // namespace
}  // namespace lathe::worker
