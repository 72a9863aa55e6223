// Limits how fast one address can try API keys.
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

// Counts refused keys per address and minute. An address over its bound is not locked out, because
// many clients may share it. Its keys that are not known to be good are then checked at a fixed
// pace. Memory is bounded: beyond kMaxAddresses, new addresses are not counted. Thread-safe.
class FailedAttempts {
 public:
  static constexpr size_t kMaxAddresses = 10'000;
  static constexpr absl::Duration kWindow = absl::Minutes(1);
  // Time between two key checks for an address that is over its bound.
  static constexpr absl::Duration kPace = absl::Milliseconds(100);

  // `clock` must outlive it. If `max_per_minute` is 0, there is no bound.
  FailedAttempts(Clock& clock, int64_t max_per_minute)
      : clock_(clock), max_per_minute_(max_per_minute) {}

  // Returns ResourceExhausted ("too_many_attempts") if a key from `address` must wait.
  absl::Status Admit(const boost::asio::ip::address& address);
  // Records that a key from `address` was refused.
  void Count(const boost::asio::ip::address& address);

 private:
  struct Attempts {
    absl::Time began_at;
    int64_t num_refused = 0;
    // Earliest time of the next key check, once the address is over its bound.
    absl::Time next_at;
  };
  // Returns null if no key from `address` was refused in the current window.
  Attempts* FindLocked(const boost::asio::ip::address& address, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock& clock_;
  const int64_t max_per_minute_;
  absl::Mutex mu_;
  std::map<boost::asio::ip::address, Attempts> attempts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::gateway
