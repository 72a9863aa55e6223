#include "services/api-gateway/http/allowed_hosts.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/listener/exposure.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/http/limits.h"

namespace lathe::gateway {
namespace {

constexpr char kAnyName[] = "*";

// Returns "HOST:PORT" without the scheme before it and the path after it.
std::string_view Authority(std::string_view text) {
  if (const size_t scheme = text.find("://"); scheme != text.npos) text.remove_prefix(scheme + 3);
  return text.substr(0, text.find('/'));
}

std::string_view WithoutPort(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

// Returns nullopt if `host` is a name.
std::optional<asio::ip::address> AddressOf(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  const auto address = asio::ip::make_address(std::string(host), error);
  if (error) return std::nullopt;
  return address;
}

}  // namespace

absl::StatusOr<std::string> HostOf(std::string_view text) {
  std::string host(WithoutPort(Authority(text)));
  absl::AsciiStrToLower(&host);
  if (host.ends_with('.')) host.pop_back();
  if (!host.empty()) return host;
  return WithDetail(absl::InvalidArgumentError(absl::StrFormat(
                        "allowed_hosts: '%s' has no host name",
                        absl::CHexEscape(AbslView(text.substr(0, kMaxQuotedBytes))))),
                    "configuration", "allowed_hosts");
}

absl::StatusOr<AllowedHosts> AllowedHosts::For(std::string_view address,
                                               const std::vector<std::string>& names,
                                               std::string_view public_url) {
  AllowedHosts allowed;
  allowed.is_loopback_ = IsLoopback(address);
  allowed.allows_all_ = !allowed.is_loopback_ && names.empty();
  for (const std::string& name : names) {
    if (name == kAnyName) allowed.allows_all_ = true;
    ASSIGN_OR_RETURN(std::string host, HostOf(name));
    allowed.names_.push_back(std::move(host));
  }
  if (!public_url.empty()) {
    ASSIGN_OR_RETURN(std::string host, HostOf(public_url));
    allowed.names_.push_back(std::move(host));
  }
  return allowed;
}

bool AllowedHosts::Allows(std::string_view host) const {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const auto address = AddressOf(host);
  if (address && (address->is_loopback() || !is_loopback_)) return true;
  return std::find(names_.begin(), names_.end(), host) != names_.end();
}

absl::Status AllowedHosts::Check(const Request& request) const {
  const std::string_view sent = request.HeaderValue("host");
  if (allows_all_ || sent.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> host = HostOf(sent);
  if (host.ok() && Allows(*host)) return absl::OkStatus();
  return WithDetail(
      absl::PermissionDeniedError(absl::StrFormat(
          "Host is '%s', which is not a name of this server; add it to gateway.allowed_hosts",
          absl::CHexEscape(AbslView(sent.substr(0, kMaxQuotedBytes))))),
      "bad_origin", "Host");
}

}  // namespace lathe::gateway
