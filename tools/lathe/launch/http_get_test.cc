#include "tools/lathe/launch/http_get.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace lathe::cli {
namespace {

// Accepts one connection and answers its request with `text`. Empty: it never answers.
class OneAnswer {
 public:
  explicit OneAnswer(std::string text) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    if (text.empty()) return;
    thread_ = std::thread([this, text = std::move(text)] {
      const int peer = accept(fd_, nullptr, nullptr);
      char request[1024];
      request_.assign(request, recv(peer, request, sizeof(request), 0));
      send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      close(peer);
    });
  }
  ~OneAnswer() {
    if (thread_.joinable()) thread_.join();
    close(fd_);
  }

  ListenAddress address() const { return {.host = "0.0.0.0", .port = port_}; }
  // Complete once an answer has arrived.
  const std::string& request() {
    thread_.join();
    return request_;
  }

 private:
  const int fd_;
  int port_ = 0;
  std::string request_;
  std::thread thread_;
};

TEST_CASE("An answer's status and body are read", "[probe]") {
  OneAnswer page("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\nstandby\n");
  const auto answer = HttpGet(page.address(), "/readyz?standby=ok", absl::Minutes(1));
  REQUIRE(answer.ok());
  CHECK(answer->status == 503);
  CHECK(answer->body == "standby\n");
  CHECK(page.request().find("GET /readyz?standby=ok HTTP/1.1\r\nHost: 127.0.0.1:") == 0);
}

TEST_CASE("What is not HTTP is no answer", "[probe]") {
  OneAnswer page("SSH-2.0-OpenSSH\r\n");
  CHECK(absl::IsUnavailable(HttpGet(page.address(), "/livez", absl::Minutes(1)).status()));
}

TEST_CASE("A closed port is no answer, at once", "[probe]") {
  ListenAddress closed;
  {
    OneAnswer page("");
    closed = page.address();
  }
  CHECK(absl::IsUnavailable(HttpGet(closed, "/livez", absl::Minutes(1)).status()));
  CHECK_FALSE(AnswersOk(closed, "/livez"));
}

TEST_CASE("A process that accepts and never answers ends the wait", "[probe]") {
  OneAnswer silent("");
  CHECK(absl::IsDeadlineExceeded(
      HttpGet(silent.address(), "/livez", absl::Milliseconds(50)).status()));
}

}  // namespace
}  // namespace lathe::cli
