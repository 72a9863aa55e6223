#include "services/api-gateway/routes/long_poll_registry.h"

#include <utility>

namespace lathe::gateway {

LongPollRegistry::Ticket::Ticket(LongPollRegistry& registry, std::shared_ptr<LongPoll> poll)
    : registry_(registry), poll_(std::move(poll)) {
  absl::MutexLock lock(&registry_.mu_);
  registry_.polls_.insert(poll_);
  if (registry_.is_ending_) poll_->PostEnd();
}

LongPollRegistry::Ticket::~Ticket() {
  absl::MutexLock lock(&registry_.mu_);
  registry_.polls_.erase(poll_);
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
