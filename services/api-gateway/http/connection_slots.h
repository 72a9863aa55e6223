// How many connections each address has open.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lathe::gateway {

// Whom `address` stands for: an IPv6 host owns its /64.
boost::asio::ip::address OwnerOf(const boost::asio::ip::address& address);

// Thread-safe; slots may outlive it. What counts is OwnerOf an address.
class ConnectionSlots {
 public:
  // Ends with the connection.
  using Slot = std::shared_ptr<void>;

  // 0: no bound.
  explicit ConnectionSlots(int64_t max_per_address) : max_per_address_(max_per_address) {}

  // Null when the address has as many as it may. Without a bound nothing is counted.
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
