// What collectives moved, by axis and name. Free of torch, so that everybody can count.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace lathe::worker {

struct CollectiveTotals {
  int64_t num_calls = 0;
  // Bytes of the whole tensor: what an all-gather gives, what a reduce-scatter takes.
  int64_t payload_bytes = 0;
  // Bytes that this rank received, see WireBytes.
  int64_t wire_bytes = 0;
  // How long callers waited. On a GPU nobody does, and it says little.
  absl::Duration waited;

  CollectiveTotals& operator+=(const CollectiveTotals& other) {
    num_calls += other.num_calls;
    payload_bytes += other.payload_bytes;
    wire_bytes += other.wire_bytes;
    waited += other.waited;
    return *this;
  }
};

// By the name of the call.
using TrafficByName = std::map<std::string, CollectiveTotals, std::less<>>;

// Of a rank, by axis.
using Traffic = std::map<std::string, TrafficByName>;

}  // namespace lathe::worker
