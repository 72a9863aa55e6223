// Registry of all waiting polls. It bounds the polls of a key, and a drain ends them all.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/api-gateway/routes/long_poll.h"

namespace lathe::gateway {

// Any thread.
class LongPollRegistry {
 public:
  // Most polls that wait under one key.
  explicit LongPollRegistry(int64_t max_per_key) : max_per_key_(max_per_key) {}

  // Registers `poll` for the ticket's lifetime. The ticket must not outlive the registry.
  class Ticket {
   public:
    Ticket(LongPollRegistry& registry, std::shared_ptr<LongPoll> poll, std::string api_key);
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // Returns ResourceExhausted `too_many_polls` if the key is over its bound. The poll must then
    // not wait.
    const absl::Status& status() const { return status_; }

   private:
    LongPollRegistry& registry_;
    std::shared_ptr<LongPoll> poll_;
    const std::string api_key_;
    absl::Status status_;
  };

  // Ends all polls, and every poll that is registered later.
  void EndAll();
  int64_t num_waiting() const;

 private:
  const int64_t max_per_key_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, int64_t> num_by_key_ ABSL_GUARDED_BY(mu_);
  std::set<std::shared_ptr<LongPoll>> polls_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::gateway
