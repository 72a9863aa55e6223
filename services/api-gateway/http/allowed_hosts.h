// The host names that a server accepts in requests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// Returns the host of "HOST", "HOST:PORT" or a URL, in lower case, without port and final dot. An
// IPv6 address keeps its brackets. Returns InvalidArgument if `text` has no host.
absl::StatusOr<std::string> HostOf(std::string_view text);

// Guards against DNS rebinding. In that attack the name of another site is pointed at this server:
// its pages then send that name as Host, and their Origin matches it. Immutable.
class AllowedHosts {
 public:
  // Allows any name.
  AllowedHosts() = default;

  // Returns the hosts of a server that listens on `address`: `names`, the host of `public_url` if
  // it is set, and loopback (localhost, names below it, 127.0.0.0/8, [::1]). If `address` is not
  // loopback, any IP address is allowed too, because rebinding needs a name. The name `*` allows
  // all hosts. So do empty `names` if `address` is not loopback, because only the operator knows
  // which names lead to the server. Returns the errors of HostOf.
  static absl::StatusOr<AllowedHosts> For(std::string_view address,
                                          const std::vector<std::string>& names,
                                          std::string_view public_url = "");

  // Returns PermissionDenied `bad_origin` for a Host that is not allowed, whatever the method. A
  // request without Host passes, because browsers always send one.
  absl::Status Check(const Request& request) const;

 private:
  bool Allows(std::string_view host) const;

  bool allows_all_ = true;
  bool is_loopback_ = false;
  std::vector<std::string> names_;
};

}  // namespace lathe::gateway
