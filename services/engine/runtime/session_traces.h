// When the stages of each request were, kept for a while: what traces are drawn from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

enum class Outcome { kOk, kUserError, kServerError, kCancelled };

// One request from its acceptance to its delivery. Times are nanoseconds since the Unix epoch; 0 is
// "not yet", or "never" for a stage that was skipped.
struct RequestSpan {
  std::string request_id;
  std::string owner_id;  // model, sampling session, or (creations) session
  OperationKind kind = OperationKind::kForwardBackward;
  int64_t seq_id = 0;
  int64_t tokens = 0;
  std::string group;               // that ran it
  int64_t num_dispatches = 0;      // more than one: its worker was lost or its stream broke
  int64_t num_batch_requests = 0;  // of the training batch it ran in
  int64_t accepted_at = 0;
  int64_t durable_at = 0;     // the acceptance is on disk
  int64_t dispatched_at = 0;  // the last time
  int64_t executed_at = 0;    // the worker's result arrived
  int64_t completed_at = 0;   // the result is on disk
  int64_t delivered_at = 0;   // its caller has it
  Outcome outcome = Outcome::kOk;
};

// Spans of the most recently accepted requests, bounded per session and in all; the oldest make
// room. In memory only: a restart begins anew. Thread-safe.
class SessionTraces {
 public:
  struct Options {
    size_t max_spans_per_session = 10'000;
    // About 600 bytes each.
    size_t max_spans = 50'000;
  };

  struct Trace {
    std::vector<RequestSpan> spans;  // in order of acceptance
    // Requests accepted up to here may be missing.
    int64_t complete_since = 0;
  };

  struct Load {
    int64_t num_waiting = 0;  // accepted and not with a worker
    int64_t num_running = 0;
  };

  // Nothing that was accepted up to `began_at` is known.
  SessionTraces(Options options, int64_t began_at);

  void OnAccepted(const RequestRow& row);
  void OnDurable(const std::string& request_id, int64_t now);
  void OnDispatched(const std::string& request_id, const std::string& group,
                    int64_t num_batch_requests, int64_t now);
  void OnExecuted(const std::string& request_id, int64_t now);
  // How it will end, known before it is durable.
  void SetOutcome(const std::string& request_id, Outcome outcome);
  // The span as it is now; unset when it is not known any more.
  std::optional<RequestSpan> OnCompleted(const std::string& request_id, int64_t now);
  void OnDelivered(const std::string& request_id, int64_t now);

  Trace Read(const std::string& session_id);
  // Of unfinished requests, by kind.
  std::map<OperationKind, Load> Loads();

 private:
  using Order = int64_t;  // of acceptance

  RequestSpan* FindLocked(const std::string& request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes an unfinished request out of the books of those.
  void LeaveLocked(const RequestSpan& span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Load& LoadLocked(const RequestSpan& span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  absl::Mutex mu_;
  Order last_order_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<Order, RequestSpan> spans_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Order> orders_ ABSL_GUARDED_BY(mu_);  // by request_id
  struct Session {
    std::set<Order> orders;
    int64_t complete_since = 0;
  };
  std::map<std::string, Session> sessions_ ABSL_GUARDED_BY(mu_);
  // Of sessions that are not in sessions_.
  int64_t complete_since_ ABSL_GUARDED_BY(mu_);
  // Unfinished requests.
  std::map<OperationKind, Load> loads_ ABSL_GUARDED_BY(mu_);
};

// The session that model, sampling session or session `owner_id` belongs to.
std::string SessionOfOwner(const std::string& owner_id);

}  // namespace lathe::engine
