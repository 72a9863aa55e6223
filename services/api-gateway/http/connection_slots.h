// Bounds the open connections of each address.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lathe::gateway {

// Returns the address that limits count `address` as: the /64 of an IPv6 address, because one host
// owns a whole /64, and `address` itself otherwise.
boost::asio::ip::address OwnerOf(const boost::asio::ip::address& address);

// Counts open connections by OwnerOf their address. Thread-safe. Slots may outlive it.
class ConnectionSlots {
 public:
  // One counted connection. It is uncounted when the last copy of its slot is destroyed.
  using Slot = std::shared_ptr<void>;

  // If `max_per_address` is 0, there is no bound.
  explicit ConnectionSlots(int64_t max_per_address) : max_per_address_(max_per_address) {}

  // Returns null if `address` is at its bound. Without a bound, no connections are counted.
  Slot Take(const boost::asio::ip::address& address);

 private:
  struct Counts {
    absl::Mutex mu;
    std::map<boost::asio::ip::address, int64_t> open ABSL_GUARDED_BY(mu);
  };

  const int64_t max_per_address_;
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace lathe::gateway
