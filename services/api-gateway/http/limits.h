// Limits of connections and requests.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace lathe::gateway {

struct HttpLimits {
  // Most bytes of the request line and headers.
  int64_t max_head_bytes = 8 << 10;
  int64_t max_header_fields = 100;
  // Most bytes of a body as sent. A route may have a lower limit. Each upload in progress uses up
  // to this much memory.
  int64_t max_body_bytes = int64_t{128} << 20;
  // Most bytes of a body after decompression. A route may have a lower limit.
  int64_t max_inflated_bytes = int64_t{512} << 20;
  // Most memory that all requests may need for their bodies, as sent, inflated and parsed. A
  // request for which there is no room is answered 429.
  int64_t max_inflight_bytes = int64_t{4} << 30;
  // Most open connections. Any further connection is closed at once.
  int64_t max_connections = 20'000;
  // Most open connections from one address, so that one client cannot take them all. An IPv6 /64
  // counts as one address, and trusted proxies do not count. 0: no limit per address.
  int64_t max_connections_per_address = 10'000;

  // Refused keys from one address in a minute, after which its further keys are checked slowly.
  // Keys known to be good are not slowed. 0: no limit.
  int64_t max_failed_keys_per_minute = 100;

  // Most polls of one key that wait at a time. Any further poll is answered 429. Below
  // max_connections, so that one key cannot take all places.
  int64_t max_polls_per_key = 10'000;
  // Most clients that receive events, in all and of one tenant. Any further one is answered 503 or
  // 429.
  int64_t max_viewers = 4000;
  int64_t max_viewers_per_tenant = 1000;

  // Longest time between requests. Long, because a client that sends while the server closes must
  // repeat its request.
  absl::Duration idle_timeout = absl::Seconds(330);
  // Longest time from the first byte of a request to the end of its headers, for a TLS handshake,
  // and from there to the first byte of a connection.
  absl::Duration head_timeout = absl::Seconds(10);
  // Longest wait for the next bytes of a request body. It also bounds each write of a response; an
  // in-memory response gets 1 s more per MiB.
  absl::Duration progress_timeout = absl::Seconds(30);
  // Lowest average rate of a request body, counted after progress_timeout. A slower body ends its
  // connection. A higher value frees the buffers of slow senders earlier, but cuts off clients on
  // poor links.
  int64_t min_body_bytes_per_second = 1024;
  // Longest time for a whole request body.
  absl::Duration body_timeout = absl::Seconds(300);
};

// Size of a connection's read buffer. Bounded, because Beast throws out of the event loop when a
// chunk trailer outgrows an unbounded one.
inline constexpr int64_t kReadBufferBytes = 32 << 10;

// Most bytes of a body, as sent and inflated, while the engine has not confirmed the request's key.
inline constexpr int64_t kMaxUnverifiedBodyBytes = 64 << 10;

// A body may inflate to this size at any ratio, and beyond it to kMaxInflationRatio times its size.
inline constexpr int64_t kFreeInflatedBytes = 1 << 20;
inline constexpr int64_t kMaxInflationRatio = 200;

// Largest body of a refused request that is read and dropped, so that the connection stays open.
inline constexpr int64_t kMaxSkippedBodyBytes = 64 << 10;

// Most bytes of a header that an error message quotes.
inline constexpr size_t kMaxQuotedBytes = 200;

}  // namespace lathe::gateway
