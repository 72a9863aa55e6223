#include "tools/lathe/launch/listen_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "libs/common/errors.h"
#include "tools/lathe/exit_code.h"

namespace lathe::cli {
namespace {

TEST_CASE("Listen addresses are read and written", "[listen]") {
  CHECK(ParseListenAddress("127.0.0.1:8080")->ToString() == "127.0.0.1:8080");
  CHECK(ParseListenAddress("localhost:1")->ToString() == "127.0.0.1:1");
  CHECK(ParseListenAddress("[::1]:80")->ToString() == "[::1]:80");
  CHECK(ParseListenAddress("0.0.0.0:80")->Url() == "http://127.0.0.1:80");
  CHECK(ParseListenAddress("[::]:80")->Url(/*has_tls=*/true) == "https://[::1]:80");
}

TEST_CASE("What is no HOST:PORT is a configuration error", "[listen]") {
  const std::string text = GENERATE("", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999",
                                    "example.org:80", "::1:80");
  CHECK(ExitCodeOf(ParseListenAddress(text).status()) == 78);
  const absl::Status named = ParseListenAddress(text, "metrics_listen").status();
  CHECK_THAT(std::string(named.message()), Catch::StartsWith("metrics_listen is '"));
}

TEST_CASE("Port 0 becomes a free port", "[listen]") {
  ListenAddress address = *ParseListenAddress("127.0.0.1:0");
  REQUIRE(ClaimPort(address).ok());
  CHECK(address.port > 0);
  CHECK(ClaimPort(address).ok());
}

// Listens on a free port until Close().
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    bound_.sin_family = AF_INET;
    bound_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(bound_);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&bound_), length) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&bound_), &length) == 0);
  }
  Listener(const Listener&) = delete;
  ~Listener() { Close(); }

  ListenAddress address() const {
    return *ParseListenAddress("127.0.0.1:" + std::to_string(ntohs(bound_.sin_port)));
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  sockaddr_in bound_{};
};

TEST_CASE("A port that a process listens on is taken", "[listen]") {
  const Listener listener;
  ListenAddress address = listener.address();
  const absl::Status status = ClaimPort(address);
  CHECK(ErrorCode(status) == "port_taken");
  CHECK(ExitCodeOf(status) == 69);
}

TEST_CASE("A port that is taken for a moment is waited for", "[listen]") {
  Listener listener;
  ListenAddress address = listener.address();
  std::thread closing([&listener] {
    absl::SleepFor(absl::Milliseconds(100));
    listener.Close();
  });
  CHECK(ClaimPort(address, absl::Seconds(60)).ok());
  closing.join();
}

TEST_CASE("An address of another machine cannot be claimed", "[listen]") {
  ListenAddress address = *ParseListenAddress("192.0.2.1:0");
  CHECK(ExitCodeOf(ClaimPort(address)) == 78);
}

}  // namespace
}  // namespace lathe::cli
