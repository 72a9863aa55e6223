// Limits of all gRPC connections between Lathe's processes.
#pragma once

namespace lathe {

// Larger than the gateway's limit of 512 MiB for inflated bodies, so that the gateway refuses
// first.
inline constexpr int kMaxMessageBytes = 640 << 20;

// Interval at which gRPC checks the certificate files for changes.
inline constexpr unsigned int kCertificateRefreshSeconds = 1;

}  // namespace lathe
