// Checks which machines can reach a listener, and whether its options allow that.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace lathe {

// Returns true if only this machine can reach `address`, HOST:PORT or unix:PATH.
bool IsLoopback(std::string_view address);

// Options of a listener.
struct Exposure {
  std::string_view option;  // name of the address option for the message: "listen"
  std::string_view address;
  bool has_tls = false;
  bool insecure_i_know = false;
};

// Returns InvalidArgument for an address that other machines can reach, unless it has TLS or
// `insecure_i_know`: keys and data would be sent in clear text.
absl::Status CheckExposure(const Exposure& exposure);

}  // namespace lathe
