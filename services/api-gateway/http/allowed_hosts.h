// Which names a server answers to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/api-gateway/http/message.h"

namespace lathe::gateway {

// The host of "HOST", "HOST:PORT" or a URL, in lower case, without port and final dot; an IPv6
// address keeps its brackets. InvalidArgument when there is none.
absl::StatusOr<std::string> HostOf(std::string_view text);

// Guards against DNS rebinding: a page of another site whose name was pointed at this server sends
// that name as Host, and its Origin agrees. Immutable.
class AllowedHosts {
 public:
  // Any name.
  AllowedHosts() = default;

  // For a server that listens on `address`: `names`, the host of `public_url` if there is one, and
  // what loopback is called (localhost, names below it, 127.0.0.0/8, [::1]). Where others reach it
  // any IP address besides, for rebinding needs a name. A name `*`, or no names and an address that
  // is not loopback, allows all: which names lead to it only its owner knows. Errors of HostOf.
  static absl::StatusOr<AllowedHosts> For(std::string_view address,
                                          const std::vector<std::string>& names,
                                          std::string_view public_url = "");

  // PermissionDenied `bad_origin` for a Host that is not allowed, whatever the method. A request
  // without Host passes: no browser sends one.
  absl::Status Check(const Request& request) const;

 private:
  bool Allows(std::string_view host) const;

  bool allows_all_ = true;
  bool is_loopback_ = false;
  std::vector<std::string> names_;
};

}  // namespace lathe::gateway
