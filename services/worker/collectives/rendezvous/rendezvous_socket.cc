#include "services/worker/collectives/rendezvous/rendezvous_socket.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

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
