#include "services/api-gateway/routes/poll_gate.h"

#include <utility>

namespace lathe::gateway {

PollGate::Ticket::Ticket(PollGate& gate, std::shared_ptr<HeldPoll> poll)
    : gate_(gate), poll_(std::move(poll)) {
  absl::MutexLock lock(&gate_.mu_);
  gate_.polls_.insert(poll_);
  if (gate_.is_ending_) poll_->PostEnd();
}

PollGate::Ticket::~Ticket() {
  absl::MutexLock lock(&gate_.mu_);
  gate_.polls_.erase(poll_);
}

void PollGate::EndAll() {
  std::set<std::shared_ptr<HeldPoll>> polls;
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
    polls = polls_;
  }
  for (const auto& poll : polls) poll->PostEnd();
}

int64_t PollGate::num_waiting() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(polls_.size());
}

}  // namespace lathe::gateway
