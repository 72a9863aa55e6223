#include "libs/common/listener/exposure.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe {
namespace {

// Parses the address, because a host name may begin like a loopback address and mean any machine.
bool IsLoopbackIpv4(std::string_view host) {
  in_addr address;
  constexpr uint32_t kLoopbackNet = 127;
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> 24 == kLoopbackNet;
}

}  // namespace

bool IsLoopback(std::string_view address) {
  if (address.substr(0, 5) == "unix:") return true;
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || IsLoopbackIpv4(host);
}

absl::Status CheckExposure(const Exposure& exposure) {
  if (exposure.has_tls || exposure.insecure_i_know || IsLoopback(exposure.address)) {
    return absl::OkStatus();
  }
  const std::string option(exposure.option);
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s is '%s', which other machines reach, and there is no TLS: use a loopback address, or "
          "tls_cert and tls_key, or --insecure-i-know",
          option, std::string(exposure.address))),
      "configuration", option);
}

}  // namespace lathe
