// Who can reach a listener, and whether it may be opened like that.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace lathe {

// Whether only this machine reaches `address`, HOST:PORT or unix:PATH.
bool IsLoopback(std::string_view address);

// What a listener is opened with.
struct Exposure {
  std::string_view option;  // that names the address, for the message: "listen"
  std::string_view address;
  bool has_tls = false;
  bool insecure_i_know = false;
};

// InvalidArgument for an address that other machines reach, without TLS and without the switch:
// keys and data would travel in the clear.
absl::Status CheckExposure(const Exposure& exposure);

}  // namespace lathe
