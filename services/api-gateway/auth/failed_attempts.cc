#include "services/api-gateway/auth/failed_attempts.h"

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"

namespace lathe::gateway {

FailedAttempts::Attempts* FailedAttempts::FindLocked(const boost::asio::ip::address& address,
                                                     absl::Time now) {
  const auto found = attempts_.find(address);
  if (found == attempts_.end() || found->second.began_at + kWindow <= now) return nullptr;
  return &found->second;
}

absl::Status FailedAttempts::Admit(const boost::asio::ip::address& address) {
  if (max_per_minute_ == 0) return absl::OkStatus();
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mu_);
  Attempts* const attempts = FindLocked(address, now);
  if (attempts == nullptr || attempts->num_refused < max_per_minute_) return absl::OkStatus();
  if (attempts->next_at <= now) {
    attempts->next_at = now + kPace;
    return absl::OkStatus();
  }
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrFormat(
          "%d keys from this address were refused within a minute, limit is %d; try again",
          attempts->num_refused, max_per_minute_)),
      "too_many_attempts");
}

void FailedAttempts::Count(const boost::asio::ip::address& address) {
  if (max_per_minute_ == 0) return;
  const absl::Time now = clock_.Now();
  bool is_over = false;
  {
    absl::MutexLock lock(&mu_);
    Attempts* attempts = FindLocked(address, now);
    if (attempts == nullptr) {
      if (attempts_.size() >= kMaxAddresses) {
        std::erase_if(attempts_,
                      [now](const auto& item) { return item.second.began_at + kWindow <= now; });
      }
      if (attempts_.size() >= kMaxAddresses) return;
      attempts = &(attempts_[address] = {.began_at = now});
    }
    is_over = ++attempts->num_refused == max_per_minute_;
  }
  if (is_over) {
    LogWarn("many keys of one address were refused",
            {{"address", address.to_string()}, {"refused", max_per_minute_}});
  }
}

}  // namespace lathe::gateway
