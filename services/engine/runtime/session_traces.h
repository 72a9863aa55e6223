// Times of the stages of each recent request, the source of traces.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "libs/common/tracing/span_context.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

enum class Outcome { kOk, kUserError, kServerError, kCancelled };

// Returns ok, user_error, server_error or cancelled.
std::string_view NameOf(Outcome outcome);

// One request from its acceptance to its delivery. Times are nanoseconds since the Unix epoch; 0
// means "not yet", or "never" for a stage that was skipped.
struct RequestSpan {
  std::string request_id;
  std::string owner_id;  // model, sampling session, or (for creations) session
  OperationKind kind = OperationKind::kForwardBackward;
  int64_t seq_id = 0;
  int64_t tokens = 0;
  std::string group;               // group that ran it
  int64_t num_dispatches = 0;      // more than one: its worker was lost or its stream broke
  int64_t num_batch_requests = 0;  // number of requests in its training batch
  int64_t accepted_at = 0;
  int64_t durable_at = 0;     // the acceptance is on disk
  int64_t dispatched_at = 0;  // the latest dispatch
  int64_t executed_at = 0;    // the worker's result arrived
  int64_t completed_at = 0;   // the result is on disk
  int64_t delivered_at = 0;   // the caller received the result
  Outcome outcome = Outcome::kOk;
  SpanContext context;    // its span for a collector; no context: none
  std::string tenant_id;  // set if the span is sampled
};

// Spans of the most recently accepted requests. The number is bounded per session and in total, and
// new spans replace the oldest. They are only in memory: a restart loses them. Thread-safe.
class SessionTraces {
 public:
  struct Options {
    size_t max_spans_per_session = 10'000;
    // Total bound. A span takes about 600 bytes.
    size_t max_spans = 50'000;
    // Spans that ReadNewest looks at.
    size_t max_spans_per_read = 2'000;
  };

  struct Trace {
    std::vector<RequestSpan> spans;  // in order of acceptance
    // The spans of requests accepted up to this time may be missing.
    int64_t complete_since = 0;
  };

  struct Load {
    int64_t num_waiting = 0;  // accepted, but not at a worker
    int64_t num_running = 0;
  };

  // `began_at`: requests accepted up to this time have no spans.
  SessionTraces(Options options, int64_t began_at);

  void OnAccepted(const RequestRow& row, const SpanContext& context = {});
  void OnDurable(const std::string& request_id, int64_t now);
  void OnDispatched(const std::string& request_id, const std::string& group,
                    int64_t num_batch_requests, int64_t now);
  void OnExecuted(const std::string& request_id, int64_t now);
  // Times of an unfinished request; all 0: it has no span.
  struct Times {
    int64_t accepted_at = 0;
    int64_t dispatched_at = 0;
    int64_t executed_at = 0;
  };
  Times TimesOf(const std::string& request_id);
  // Sets the outcome of a request before its result is durable.
  void SetOutcome(const std::string& request_id, Outcome outcome);
  // Returns the final span, or nullopt when it was dropped.
  std::optional<RequestSpan> OnCompleted(const std::string& request_id, int64_t now);
  // Returns a sampled span at its first delivery.
  std::optional<RequestSpan> OnDelivered(const std::string& request_id, int64_t now);

  Trace Read(const std::string& session_id);
  // Returns at most `limit` spans of one owner, newest first. Looks at a bounded number of its
  // session's spans, because calls that record spans wait meanwhile.
  Trace ReadNewest(const std::string& owner_id, int64_t limit);
  // Returns the number of unfinished requests, by kind.
  std::map<OperationKind, Load> Loads();

 private:
  using Order = int64_t;  // sequence number of acceptance

  RequestSpan* FindLocked(const std::string& request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes an unfinished request from the counts of unfinished ones.
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
  // Bound for the sessions that are not in sessions_.
  int64_t complete_since_ ABSL_GUARDED_BY(mu_);
  // Numbers of unfinished requests.
  std::map<OperationKind, Load> loads_ ABSL_GUARDED_BY(mu_);
};

// Returns the session that `owner_id` (a model, sampling session or session) belongs to.
std::string SessionOfOwner(const std::string& owner_id);

}  // namespace lathe::engine
