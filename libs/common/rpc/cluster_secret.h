// The secrets that processes of a service present to its engines. Each engine writes them into its
// run directory.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// File of the workers' secret in the run directory.
inline constexpr char kWorkerSecretFile[] = "secret";
// File of the gateways' secret. The workers' secret cannot be derived from it, so a machine that
// faces the Internet has nothing with which it could act as a worker.
inline constexpr char kGatewaySecretFile[] = "gateway.secret";

// Name of the gRPC metadata with the gateways' secret.
inline constexpr char kGatewaySecretHeader[] = "lathe-gateway-secret";

// Returns the text of the file without the line's end; empty if it cannot be read.
std::string ReadSecretFile(const std::string& path);

// Returns the gateways' secret, which follows from the workers' secret: 64 hex digits.
std::string GatewaySecretOf(std::string_view worker_secret);

}  // namespace lathe
