#include "tools/lathe/launch/http_get.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::cli {
namespace {

constexpr std::size_t kMaxAnswerBytes = 8 << 10;

// A connection whose every wait ends at `deadline`.
class Connection {
 public:
  Connection(int family, absl::Time deadline)
      : fd_(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), deadline_(deadline) {}
  Connection(const Connection&) = delete;
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Connect(const sockaddr* address, socklen_t length) {
    if (connect(fd_, address, length) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return Broken("cannot connect");
    RETURN_IF_ERROR(Await(POLLOUT));
    socklen_t size = sizeof(errno);
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &errno, &size) == 0 && errno == 0) {
      return absl::OkStatus();
    }
    return Broken("cannot connect");
  }

  absl::Status Send(std::string_view text) {
    while (!text.empty()) {
      RETURN_IF_ERROR(Await(POLLOUT));
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
      if (sent <= 0 && errno != EAGAIN && errno != EINTR) return Broken("cannot send");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadAll() {
    std::string answer;
    char piece[1024];
    while (answer.size() < kMaxAnswerBytes) {
      RETURN_IF_ERROR(Await(POLLIN));
      const ssize_t got = recv(fd_, piece, sizeof(piece), 0);
      if (got == 0) break;
      if (got > 0) answer.append(piece, static_cast<std::size_t>(got));
      if (got < 0 && errno != EAGAIN && errno != EINTR) return Broken("cannot read the answer");
    }
    return answer;
  }

 private:
  static absl::Status Broken(const char* what) {
    return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
  }

  absl::Status Await(short events) const {
    pollfd one{.fd = fd_, .events = events, .revents = 0};
    while (true) {
      const int64_t left = absl::ToInt64Milliseconds(deadline_ - SteadyNow());
      const int ready = poll(&one, 1, static_cast<int>(std::max<int64_t>(left, 0)));
      if (ready > 0) return absl::OkStatus();
      if (ready == 0) return absl::DeadlineExceededError("no answer in time");
      if (errno != EINTR) return Broken("cannot wait");
    }
  }

  const int fd_;
  const absl::Time deadline_;
};

absl::StatusOr<HttpAnswer> Parse(const std::string& text) {
  HttpAnswer answer;
  if (text.compare(0, 7, "HTTP/1.") != 0 || text.size() < 12 ||
      !absl::SimpleAtoi(text.substr(9, 3), &answer.status)) {
    return absl::UnavailableError("the answer is not HTTP");
  }
  const std::size_t end_of_head = text.find("\r\n\r\n");
  answer.head = text.substr(0, end_of_head);
  if (end_of_head != std::string::npos) answer.body = text.substr(end_of_head + 4);
  return answer;
}

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const ListenAddress& address, const std::string& path,
                                   absl::Duration timeout) {
  const ListenAddress reachable = address.Reachable();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(reachable.port);
  if (getaddrinfo(reachable.host.c_str(), port.c_str(), &hints, &found) != 0) {
    return absl::UnavailableError(absl::StrCat(reachable.host, " is not an address"));
  }
  Connection connection(found->ai_family, SteadyNow() + timeout);
  const absl::Status connected = connection.Connect(found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  RETURN_IF_ERROR(connected);
  RETURN_IF_ERROR(connection.Send(absl::StrCat(
      "GET ", path, " HTTP/1.1\r\nHost: ", reachable.ToString(), "\r\nConnection: close\r\n\r\n")));
  ASSIGN_OR_RETURN(const std::string text, connection.ReadAll());
  return Parse(text);
}

bool AnswersOk(const ListenAddress& address, const std::string& path) {
  const absl::StatusOr<HttpAnswer> answer = HttpGet(address, path, absl::Seconds(1));
  return answer.ok() && answer->status == 200;
}

}  // namespace lathe::cli
