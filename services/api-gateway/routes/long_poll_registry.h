// Registry of all waiting polls, so that a drain can end them.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/api-gateway/routes/long_poll.h"

namespace lathe::gateway {

// Any thread.
class LongPollRegistry {
 public:
  // Registers `poll` for the ticket's lifetime. The ticket must not outlive the registry.
  class Ticket {
   public:
    Ticket(LongPollRegistry& registry, std::shared_ptr<LongPoll> poll);
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    LongPollRegistry& registry_;
    std::shared_ptr<LongPoll> poll_;
  };

  // Ends all polls, and every poll that is registered later.
  void EndAll();
  int64_t num_waiting() const;

 private:
  mutable absl::Mutex mu_;
  std::set<std::shared_ptr<LongPoll>> polls_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
