// The gateway's address, looked at before anything is started.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::cli {

// HOST:PORT with a numeric host; IPv6 as [::1]:8080.
struct ListenAddress {
  std::string host;
  int port = 0;
  bool is_ipv6 = false;

  std::string ToString() const;
  // As a client on this machine reaches it: loopback for "any address".
  ListenAddress Reachable() const;
  // http://HOST:PORT or https://HOST:PORT of Reachable().
  std::string Url(bool has_tls = false) const;
};

// configuration error that names `option` when `text` is not HOST:PORT.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text,
                                                 const std::string& option = "listen");

// Makes sure that the port can be bound now, and picks a free one for port 0. Errors: port_taken,
// permission, and configuration for an address that this machine does not have.
absl::Status ClaimPort(ListenAddress& address);

// Whether somebody accepts connections there.
bool Accepts(const ListenAddress& address);

// Whether GET `path` on the address is answered with 200 within a second.
bool AnswersOk(const ListenAddress& address, const std::string& path);

}  // namespace lathe::cli
