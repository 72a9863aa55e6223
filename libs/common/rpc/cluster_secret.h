// The secret in RUN_DIR/secret of every engine, which the other processes of a service present.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Name of the gRPC metadata with GatewayCredential.
inline constexpr char kGatewayCredentialHeader[] = "lathe-gateway-credential";

// Returns the text of the file without the line's end; empty if it cannot be read.
std::string ReadSecretFile(const std::string& path);

// Returns what a gateway presents with each call to an engine on another machine: 64 hex digits,
// derived from `secret`. It makes no worker, because the secret cannot be derived from it. Empty:
// `secret` is empty.
std::string GatewayCredential(std::string_view secret);

}  // namespace lathe
