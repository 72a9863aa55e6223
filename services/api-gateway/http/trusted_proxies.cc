#include "services/api-gateway/http/trusted_proxies.h"

#include <algorithm>
#include <boost/asio/ip/network_v4.hpp>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/api-gateway/http/connection_slots.h"

namespace lathe::gateway {
namespace {

namespace ip = boost::asio::ip;

constexpr unsigned short kMappedBits = 96;  // before the 32 bits of an IPv4 address

ip::address_v6 AsV6(const ip::address& address) {
  if (address.is_v6()) return address.to_v6();
  return ip::make_address_v6(ip::v4_mapped, address.to_v4());
}

std::optional<ip::network_v6> ParseNetwork(const std::string& text) {
  boost::system::error_code error;
  if (!absl::StrContains(text, '/')) {
    const ip::address address = ip::make_address(text, error);
    if (error) return std::nullopt;
    return ip::network_v6(AsV6(address), 128);
  }
  const ip::network_v4 v4 = ip::make_network_v4(text, error);
  if (!error) {
    return ip::network_v6(AsV6(v4.network()),
                          static_cast<unsigned short>(kMappedBits + v4.prefix_length()));
  }
  const ip::network_v6 v6 = ip::make_network_v6(text, error);
  if (error) return std::nullopt;
  return v6.canonical();
}

// Parses "1.2.3.4", "1.2.3.4:80", "::1" or "[::1]:80". Proxies write all of these.
std::optional<ip::address> ParseClient(std::string text) {
  absl::StripAsciiWhitespace(&text);
  if (text.starts_with("[")) {
    text = text.substr(1, text.find(']') - 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    text = text.substr(0, text.find(':'));
  }
  boost::system::error_code error;
  const ip::address address = ip::make_address(text, error);
  if (error) return std::nullopt;
  return address;
}

}  // namespace

absl::StatusOr<TrustedProxies> TrustedProxies::Parse(const std::vector<std::string>& items) {
  TrustedProxies proxies;
  for (const std::string& item : items) {
    const std::optional<ip::network_v6> network = ParseNetwork(item);
    if (!network) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trusted_proxies has '", item, "', expected an address or a network like 10.0.0.0/8"));
    }
    proxies.networks_.push_back(*network);
  }
  return proxies;
}

bool TrustedProxies::Contains(const ip::address& address) const {
  const ip::network_v6 host(AsV6(address), 128);
  return std::any_of(networks_.begin(), networks_.end(), [&](const ip::network_v6& network) {
    return host == network || host.is_subnet_of(network);
  });
}

void TrustedProxies::Apply(const ip::address& peer, Request& request) const {
  request.peer = OwnerOf(peer);
  if (!Contains(peer)) return;
  const std::string scheme(request.HeaderValue("x-forwarded-proto"));
  if (!scheme.empty()) request.is_tls = absl::EqualsIgnoreCase(scheme, "https");
  // A proxy appends, either to the header or as a further header of that name.
  for (auto header = request.headers.rbegin(); header != request.headers.rend(); ++header) {
    if (!absl::EqualsIgnoreCase(header->name, "x-forwarded-for")) continue;
    const std::vector<std::string> hops = absl::StrSplit(header->value, ',');
    for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) {
      const std::optional<ip::address> address = ParseClient(*hop);
      if (!address) return;
      request.peer = OwnerOf(*address);
      if (!Contains(*address)) return;
    }
  }
}

}  // namespace lathe::gateway
