// Bounds how fast one address can try keys.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/time/clock.h"

namespace lathe::gateway {

// Counts refused keys per address and minute. An address over its bound is not locked out, for it
// may be that of many: keys that are not known to be good are then looked at one after the other,
// at a fixed pace. Thread-safe, and bounded: of more addresses than kMaxAddresses some go
// uncounted.
class FailedAttempts {
 public:
  static constexpr size_t kMaxAddresses = 10'000;
  static constexpr absl::Duration kWindow = absl::Minutes(1);
  // Between two looks at keys of an address that is over its bound.
  static constexpr absl::Duration kPace = absl::Milliseconds(100);

  // `clock` must outlive it. `max_per_minute` 0: no bound.
  FailedAttempts(Clock& clock, int64_t max_per_minute)
      : clock_(clock), max_per_minute_(max_per_minute) {}

  // ResourceExhausted ("too_many_attempts") when a key from `address` must not be looked at now.
  absl::Status Admit(const boost::asio::ip::address& address);
  // A key from there was refused.
  void Count(const boost::asio::ip::address& address);

 private:
  struct Attempts {
    absl::Time began_at;
    int64_t num_refused = 0;
    // Of the next look, once it is over the bound.
    absl::Time next_at;
  };
  // Null when the address has none of the present window.
  Attempts* FindLocked(const boost::asio::ip::address& address, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock& clock_;
  const int64_t max_per_minute_;
  absl::Mutex mu_;
  std::map<boost::asio::ip::address, Attempts> attempts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
