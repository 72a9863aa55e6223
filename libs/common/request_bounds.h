// Bounds on the parts of a training request. Gateways check them before they parse a body, and the
// engine checks them in requests of gRPC clients.
#pragma once

#include <cstdint>

namespace lathe {

// Most datums of a request. A datum takes some hundred bytes, however short it is.
inline constexpr int kMaxDatums = 65536;

// Most messages in a datum: chunks, tensors, spans and what they hold.
inline constexpr int kMaxDatumMessages = 65536;

// Memory that a parsed request takes for each message in it, however small, and for each other
// field. The contents of strings come on top.
inline constexpr int64_t kMessagePartBytes = 96;
inline constexpr int64_t kFieldPartBytes = 16;

// Returns the most bytes of parts of a request whose body has `body_bytes`. It has room for
// kMaxDatums datums with a chunk and two tensors each.
inline constexpr int64_t MaxPartBytes(int64_t body_bytes) {
  return (int64_t{56} << 20) + body_bytes;
}

}  // namespace lathe
