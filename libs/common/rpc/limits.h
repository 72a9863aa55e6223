// Bounds of every gRPC connection between Lathe's processes.
#pragma once

namespace lathe {

// Above the gateway's inflated body limit of 512 MiB, so that the gateway is who refuses.
inline constexpr int kMaxMessageBytes = 640 << 20;

}  // namespace lathe
