// Proxies whose word about a client's address counts.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// The addresses of load balancers and ingresses in front of a server. Immutable.
class TrustedProxies {
 public:
  // Trusts nobody.
  TrustedProxies() = default;

  // Each item is an address or a network such as 10.0.0.0/8 or fd00::/8. InvalidArgument otherwise.
  static absl::StatusOr<TrustedProxies> Parse(const std::vector<std::string>& items);

  bool Contains(const boost::asio::ip::address& address) const;

  // If `peer` is a trusted proxy, sets request.peer to the client that X-Forwarded-For names, and
  // request.is_tls by X-Forwarded-Proto. The client is the last address that no trusted proxy has:
  // what stands before it comes from the client, who may write anything. Otherwise request.peer
  // becomes `peer`. Either way as OwnerOf maps it.
  void Apply(const boost::asio::ip::address& peer, Request& request) const;

 private:
  // IPv4 networks are kept as IPv4-mapped ones.
  std::vector<boost::asio::ip::network_v6> networks_;
};

}  // namespace lathe::gateway
