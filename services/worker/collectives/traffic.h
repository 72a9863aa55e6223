// Counters of the data that collectives moved, by axis and name. Does not include torch, so that
// any code can use them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace lathe::worker {

struct CollectiveTotals {
  int64_t num_calls = 0;
  // Bytes of the whole tensor: an all-gather's output, a reduce-scatter's input.
  int64_t payload_bytes = 0;
  // Bytes that this rank received, see WireBytes.
  int64_t wire_bytes = 0;
  // Time that callers spent in the calls. On a GPU callers do not wait, so it says little.
  absl::Duration waited;

  CollectiveTotals& operator+=(const CollectiveTotals& other) {
    num_calls += other.num_calls;
    payload_bytes += other.payload_bytes;
    wire_bytes += other.wire_bytes;
    waited += other.waited;
    return *this;
  }
};

// Keyed by the name of the call.
using TrafficByName = std::map<std::string, CollectiveTotals, std::less<>>;

// Traffic of a rank, by axis.
using Traffic = std::map<std::string, TrafficByName>;

}  // namespace lathe::worker
