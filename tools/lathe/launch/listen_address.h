// Checks of listen addresses before any process starts.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::cli {

// HOST:PORT with a numeric host; IPv6 is written as [::1]:8080.
struct ListenAddress {
  std::string host;
  int port = 0;
  bool is_ipv6 = false;

  std::string ToString() const;
  // Returns the address at which a client on this machine reaches it: loopback for "any address".
  ListenAddress Reachable() const;
  // Returns http://HOST:PORT or https://HOST:PORT of Reachable().
  std::string Url(bool has_tls = false) const;
};

// Parses HOST:PORT; `localhost` becomes 127.0.0.1. Otherwise fails with a configuration error that
// names `option`.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option = "listen");

// Checks that the port can be bound now, and replaces port 0 by a free port. The port is not kept
// bound. A port in use is tried again for `patience`. Errors: port_taken, permission, and
// configuration for an address that this machine lacks.
absl::Status ClaimPort(ListenAddress& address, absl::Duration patience = absl::ZeroDuration());

// Returns true if a process accepts connections on the address.
bool Accepts(const ListenAddress& address);

}  // namespace lathe::cli
