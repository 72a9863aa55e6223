#include "libs/common/listener/exposure.h"

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"

namespace lathe {

bool IsLoopback(std::string_view address) {
  if (address.substr(0, 5) == "unix:") return true;
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(AbslView(host), "127.");
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
