// Header of the deliveries that a gateway reports with a call.
#pragma once

namespace lathe {

// Name of the gRPC metadata with the id of a request whose answer was written to the caller before
// it made this call. A call may have several. The report on the stream Watch may come later.
inline constexpr char kDeliveredHeader[] = "lathe-delivered";

}  // namespace lathe
