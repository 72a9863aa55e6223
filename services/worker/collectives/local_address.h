// Which of this machine's addresses ranks speak over. Their traffic is neither encrypted nor
// authenticated: it belongs on a private network, and nothing of it listens on all addresses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::worker {

// A numeric address from one, or from the name of an interface ("eth0": its first IPv4 address,
// else its first IPv6 one that is not link-local). InvalidArgument for the address that means all
// of them, and for a name that no interface has; it says which addresses there are.
absl::StatusOr<std::string> LocalAddress(std::string_view address_or_interface);

// The numeric address of this machine from which it reaches `address`, a numeric one.
// FailedPrecondition: no route leads there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

// A socket that listens, so that its port can be told to others before anything serves it.
class ListeningSocket {
 public:
  // `address` is as for LocalAddress; port 0: the kernel chooses. InvalidArgument as there, and for
  // an address that is not this machine's; Unavailable: a port that is taken.
  static absl::StatusOr<ListeningSocket> Open(const std::string& address, uint16_t port = 0);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }
  // The descriptor, which is the caller's from now on.
  int Release();

 private:
  ListeningSocket(int fd, std::string address, uint16_t port)
      : fd_(fd), address_(std::move(address)), port_(port) {}

  int fd_;
  std::string address_;
  uint16_t port_;
};

}  // namespace lathe::worker
