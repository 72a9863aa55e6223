#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns null if `text` is not a numeric address.
AddressList ParseNumeric(const std::string& text, uint16_t port) {
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (getaddrinfo(text.c_str(), service.c_str(), &hints, &found) != 0) found = nullptr;
  return AddressList(found, &freeaddrinfo);
}

bool MeansAll(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::optional<std::string> TextOf(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
    return text;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return std::nullopt;
  inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
  return text;
}

std::optional<std::string> AddressOfInterface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_name != name || entry->ifa_addr == nullptr) continue;
      if (entry->ifa_addr->sa_family != family) continue;
      if (std::optional<std::string> text = TextOf(*entry->ifa_addr)) return text;
    }
  }
  return std::nullopt;
}

// "127.0.0.1 (lo), 10.0.0.5 (eth0)"
std::string AddressesOfThisMachine() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "none that can be listed";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::string all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::optional<std::string> text = TextOf(*entry->ifa_addr);
    if (!text.has_value()) continue;
    absl::StrAppend(&all, all.empty() ? "" : ", ", *text, " (", entry->ifa_name, ")");
  }
  return all.empty() ? "none" : all;
}

absl::Status CannotListen(const std::string& address, uint16_t port, const char* step) {
  if (errno == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank address is ", address,
                     ", which is not one of this machine's: ", AddressesOfThisMachine()));
  }
  return absl::UnavailableError(absl::StrFormat("cannot listen on %s port %d: %s: %s", address,
                                                port, step, std::strerror(errno)));
}

uint16_t PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound).sin_port
                                          : reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
}

// "[::1]:80" -> "::1"
std::string HostOf(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

// Returns the first numeric address that `host` resolves to.
absl::StatusOr<std::string> Resolve(const std::string& host) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("engine's host ", host, " is not found: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  char numeric[NI_MAXHOST] = {};
  getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof(numeric), nullptr, 0,
              NI_NUMERICHOST);
  return std::string(numeric);
}

}  // namespace

absl::StatusOr<std::string> LocalAddress(std::string_view address_or_interface) {
  const std::string text(address_or_interface);
  if (const AddressList numeric = ParseNumeric(text, 0)) {
    if (!MeansAll(*numeric->ai_addr)) return text;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank address is ", text, ", which is every interface: name one, or its address"));
  }
  if (std::optional<std::string> address = AddressOfInterface(text)) return *std::move(address);
  return absl::InvalidArgumentError(
      absl::StrCat("rank address is ", text,
                   ": neither an address nor an interface of this machine that has one: ",
                   AddressesOfThisMachine()));
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  // The port does not matter: connecting a datagram socket sends nothing, it only selects the
  // route.
  const AddressList target = ParseNumeric(address, 9);
  if (target == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("rank address is ", address, ", not numeric"));
  }
  const int fd = socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  const bool is_routed = fd >= 0 && connect(fd, target->ai_addr, target->ai_addrlen) == 0 &&
                         getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (is_routed) {
    if (std::optional<std::string> text = TextOf(reinterpret_cast<const sockaddr&>(own))) {
      return *std::move(text);
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no route leads to ", address,
      ", where rank 0 is (its --rendezvous): ", is_routed ? "link-local" : std::strerror(error),
      "; this machine's addresses are ", AddressesOfThisMachine()));
}

absl::StatusOr<ListeningSocket> ListeningSocket::Open(const std::string& address, uint16_t port) {
  ASSIGN_OR_RETURN(const std::string numeric, LocalAddress(address));
  const AddressList target = ParseNumeric(numeric, port);
  const int fd = socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotListen(numeric, port, "socket");
  ListeningSocket opened(fd, numeric, port);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, target->ai_addr, target->ai_addrlen) != 0)
    return CannotListen(numeric, port, "bind");
  if (listen(fd, SOMAXCONN) != 0) return CannotListen(numeric, port, "listen");
  opened.port_ = PortOf(fd);
  return opened;
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)), port_(other.port_) {}

ListeningSocket::~ListeningSocket() {
  if (fd_ >= 0) close(fd_);
}

int ListeningSocket::Release() { return std::exchange(fd_, -1); }

absl::StatusOr<ListeningSocket> OpenRendezvousSocket(const std::string& address,
                                                     const std::string& engine_address,
                                                     const std::string& flag) {
  if (!address.empty()) {
    absl::StatusOr<ListeningSocket> socket = ListeningSocket::Open(address);
    if (socket.ok()) return socket;
    return absl::Status(socket.status().code(),
                        absl::StrCat(flag, " ", address, ": ", socket.status().message()));
  }
  if (absl::StartsWith(engine_address, "unix:")) return ListeningSocket::Open("127.0.0.1");
  ASSIGN_OR_RETURN(const std::string engine, Resolve(HostOf(engine_address)));
  ASSIGN_OR_RETURN(const std::string own, LocalAddressTowards(engine));
  return ListeningSocket::Open(own);
}

}  // namespace lathe::worker
