// Bounds of every gRPC connection between Lathe's processes.
#pragma once

namespace lathe {

// Above the gateway's inflated body limit of 512 MiB, so that the gateway is who refuses.
inline constexpr int kMaxMessageBytes = 640 << 20;

// How often gRPC looks whether the certificate files were exchanged.
inline constexpr unsigned int kCertificateRefreshSeconds = 1;

}  // namespace lathe
