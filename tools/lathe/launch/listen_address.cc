#include "tools/lathe/launch/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// Returns false if the host is not a numeric address.
bool Fill(const ListenAddress& address, SocketAddress& socket_address) {
  const auto port = htons(static_cast<uint16_t>(address.port));
  if (address.is_ipv6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&socket_address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    socket_address.length = sizeof(*v6);
    return inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) == 1;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&socket_address.storage);
  v4->sin_family = AF_INET;
  v4->sin_port = port;
  socket_address.length = sizeof(*v4);
  return inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1;
}

class Socket {
 public:
  explicit Socket(const ListenAddress& address)
      : fd_(socket(address.is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Socket(const Socket&) = delete;
  ~Socket() { close(fd_); }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status BindError(const ListenAddress& address, int error) {
  const std::string text = address.ToString();
  if (error == EADDRINUSE) {
    return WithDetail(absl::UnavailableError(absl::StrCat(
                          text,
                          " is in use by another program; choose another with --listen, or "
                          "let one be picked with port 0")),
                      "port_taken", "listen");
  }
  const std::string message = absl::StrCat("cannot listen on ", text, ": ", std::strerror(error));
  return error == EACCES
             ? WithDetail(absl::PermissionDeniedError(message), "permission", "listen")
             : WithDetail(absl::InvalidArgumentError(message), "configuration", "listen");
}

absl::Status TryToClaimPort(ListenAddress& address) {
  const Socket socket(address);
  SocketAddress bound;
  Fill(address, bound);
  // Old connections (TIME_WAIT) of a gateway that just ended must not make the port look taken.
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.fd(), bound.get(), bound.length) != 0 || listen(socket.fd(), 1) != 0) {
    return BindError(address, errno);
  }
  getsockname(socket.fd(), bound.get(), &bound.length);
  address.port = ntohs(address.is_ipv6 ? reinterpret_cast<sockaddr_in6*>(bound.get())->sin6_port
                                       : reinterpret_cast<sockaddr_in*>(bound.get())->sin_port);
  return absl::OkStatus();
}

}  // namespace

std::string ListenAddress::ToString() const {
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

ListenAddress ListenAddress::Reachable() const {
  ListenAddress reachable = *this;
  if (host == "0.0.0.0") reachable.host = "127.0.0.1";
  if (host == "::") reachable.host = "::1";
  return reachable;
}

std::string ListenAddress::Url(bool has_tls) const {
  return absl::StrCat(has_tls ? "https://" : "http://", Reachable().ToString());
}

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option) {
  ListenAddress address;
  const std::size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  address.is_ipv6 = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  address.host = address.is_ipv6 ? host.substr(1, host.size() - 2) : host;
  if (address.host == "localhost") address.host = "127.0.0.1";
  SocketAddress ignored;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &address.port) ||
      address.port < 0 || address.port > 65535 || !Fill(address, ignored)) {
    return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                          option, " is '", text, "', expected HOST:PORT such as 127.0.0.1:8080")),
                      "configuration", option);
  }
  return address;
}

absl::Status ClaimPort(ListenAddress& address, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (true) {
    const absl::Status status = TryToClaimPort(address);
    if (!absl::IsUnavailable(status) || absl::Now() >= deadline) return status;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

bool Accepts(const ListenAddress& address) {
  const ListenAddress reachable = address.Reachable();
  const Socket socket(reachable);
  SocketAddress peer;
  Fill(reachable, peer);
  return connect(socket.fd(), peer.get(), peer.length) == 0;
}

}  // namespace lathe::cli
