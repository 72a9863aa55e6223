// Bounds of one connection and one request.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace lathe::gateway {

struct HttpLimits {
  // Status line and headers, bytes.
  int64_t max_head_bytes = 8 << 10;
  int64_t max_header_fields = 100;
  // Body as sent, bytes. A route may have a lower one. Each open upload costs up to this much.
  int64_t max_body_bytes = int64_t{128} << 20;
  // Body after decompression, bytes.
  int64_t max_inflated_bytes = int64_t{512} << 20;
  // Open connections; one more is closed at once.
  int64_t max_connections = 20'000;
  // Of these from one address, so that one client cannot take them all; an IPv6 /64 counts as one.
  // 0: no bound of its own, as behind a proxy.
  int64_t max_connections_per_address = 10'000;

  // Keys from one address that are refused; then it may try others at a slow pace, and keys known
  // to be good pass as ever. 0: no bound of its own, as behind a proxy.
  int64_t max_failed_keys_per_minute = 100;

  // Between requests. Long, because a client that sends while we close must repeat its request.
  absl::Duration idle_timeout = absl::Seconds(330);
  // From the first byte of a request to the end of its headers; also for a TLS handshake.
  absl::Duration head_timeout = absl::Seconds(10);
  // Without a single byte of a body or of a response accepted.
  absl::Duration progress_timeout = absl::Seconds(30);
  // A body that is slower on average, counted after progress_timeout, ends its connection. More:
  // slow senders hold their connections and buffers for less time, and poor links lose theirs.
  int64_t min_body_bytes_per_second = 1024;
  // For a whole body.
  absl::Duration body_timeout = absl::Seconds(300);
};

// Read buffer of a connection. Bounded, because Beast throws out of the event loop when a chunk
// trailer outgrows an unbounded one.
inline constexpr int64_t kReadBufferBytes = 32 << 10;

// A refused request's body of at most this size is read and dropped, so that the connection lives.
inline constexpr int64_t kMaxSkippedBodyBytes = 64 << 10;

// Error messages quote no more than this of a header.
inline constexpr size_t kMaxQuotedBytes = 200;

}  // namespace lathe::gateway
