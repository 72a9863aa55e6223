#include "services/api-gateway/routes/long_poll_registry.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"

namespace lathe::gateway {

LongPollRegistry::Ticket::Ticket(LongPollRegistry& registry, std::shared_ptr<LongPoll> poll,
                                 std::string api_key)
    : registry_(registry), poll_(std::move(poll)), api_key_(std::move(api_key)) {
  absl::MutexLock lock(&registry_.mu_);
  const int64_t num_polls = ++registry_.num_by_key_[api_key_];
  if (num_polls > registry_.max_per_key_) {
    status_ = WithDetail(absl::ResourceExhaustedError(absl::StrFormat(
                             "%d polls of this key wait already, limit is %d; try again",
                             num_polls - 1, registry_.max_per_key_)),
                         "too_many_polls");
  }
  registry_.polls_.insert(poll_);
  if (registry_.is_ending_) poll_->PostEnd();
}

LongPollRegistry::Ticket::~Ticket() {
  absl::MutexLock lock(&registry_.mu_);
  registry_.polls_.erase(poll_);
  const auto found = registry_.num_by_key_.find(api_key_);
  if (--found->second == 0) registry_.num_by_key_.erase(found);
}

void LongPollRegistry::EndAll() {
  std::set<std::shared_ptr<LongPoll>> polls;
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
    polls = polls_;
  }
  for (const auto& poll : polls) poll->PostEnd();
}

int64_t LongPollRegistry::num_waiting() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(polls_.size());
}

}  // namespace lathe::gateway
