// Chooses the address of this machine that ranks communicate over, and opens the socket at which
// they find rank 0. Their traffic is neither encrypted nor authenticated. It belongs on a private
// network, and none of it listens on all addresses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lathe::worker {

// Returns a numeric address. The argument is such an address or the name of an interface ("eth0":
// its first IPv4 address, else its first IPv6 address that is not link-local). InvalidArgument: the
// wildcard address, or a name that no interface has. The error lists the addresses of this machine.
absl::StatusOr<std::string> LocalAddress(std::string_view address_or_interface);

// Returns the numeric address of this machine from which it reaches the numeric `address`.
// FailedPrecondition: no route leads there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

// A listening socket. Its port can be announced before anything serves it.
class ListeningSocket {
 public:
  // `address` is as for LocalAddress. With port 0 the kernel chooses one. InvalidArgument as for
  // LocalAddress, and for an address of another machine. Unavailable: the port is taken.
  static absl::StatusOr<ListeningSocket> Open(const std::string& address, uint16_t port = 0);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }
  // Returns the descriptor and transfers its ownership to the caller.
  int Release();

 private:
  ListeningSocket(int fd, std::string address, uint16_t port)
      : fd_(fd), address_(std::move(address)), port_(port) {}

  int fd_;
  std::string address_;
  uint16_t port_;
};

// The engine sends it once all ranks of the group have attached.
struct RendezvousPoint {
  std::string session;  // identifies this set of processes; no other set uses it
  std::string address;  // numeric, of rank 0's store
  uint16_t port = 0;
};

// Listens on `address`, the value of `flag`: a numeric address of this machine or the name of an
// interface. If it is empty, it listens on the address from which this machine reaches the engine
// at `engine_address` ("unix:PATH" or "HOST:PORT"): loopback for a local engine. InvalidArgument:
// not an address of this machine. FailedPrecondition: no route to the engine. Unavailable: the
// engine's name cannot be resolved.
absl::StatusOr<ListeningSocket> OpenRendezvousSocket(const std::string& address,
                                                     const std::string& engine_address,
                                                     const std::string& flag = "--rendezvous");

}  // namespace lathe::worker
