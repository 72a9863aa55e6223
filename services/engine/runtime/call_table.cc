#include "services/engine/runtime/call_table.h"

#include <iterator>
#include <utility>

namespace lathe::engine {
namespace {

ErrorInfo ToBeRepeated(ErrorInfo error) {
  error.message += "; the same request may be sent again";
  return error;
}

ErrorInfo OfUnknownOutcome(ErrorInfo error) {
  error.status = absl::StatusCode::kDeadlineExceeded;
  error.code = "outcome_unknown";
  error.message +=
      "; the request may have been accepted, and sent again it would be another one: a request "
      "with seq_id or X-Idempotency-Key can be repeated";
  return error;
}

}  // namespace

CallId CallTable::Add(Callback callback, Time deadline, bool may_repeat, const SpanContext& span) {
  absl::MutexLock lock(&mu_);
  waiting_.emplace(next_, Waiting{std::move(callback), deadline, may_repeat, span});
  return next_++;
}

SpanContext CallTable::SpanOf(CallId call) {
  absl::MutexLock lock(&mu_);
  const auto found = waiting_.find(call);
  return found == waiting_.end() ? SpanContext() : found->second.span;
}

void CallTable::Finish(const Answer& answer) {
  Callback callback;
  {
    absl::MutexLock lock(&mu_);
    const auto found = waiting_.find(answer.call);
    if (found == waiting_.end()) return;
    callback = std::move(found->second.callback);
    waiting_.erase(found);
  }
  callback(answer);
}

void CallTable::FailAll(const ErrorInfo& error) {
  std::map<CallId, Waiting> waiting;
  {
    absl::MutexLock lock(&mu_);
    waiting.swap(waiting_);
  }
  Fail(waiting, error);
}

void CallTable::FailExpired(Time now, const ErrorInfo& error) {
  std::map<CallId, Waiting> expired;
  {
    absl::MutexLock lock(&mu_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const auto next = std::next(it);
      if (it->second.deadline < now) expired.insert(waiting_.extract(it));
      it = next;
    }
  }
  Fail(expired, error);
}

void CallTable::Fail(const std::map<CallId, Waiting>& waiting, const ErrorInfo& error) {
  for (const auto& [call, one] : waiting) {
    Answer answer;
    answer.call = call;
    answer.error = one.may_repeat ? ToBeRepeated(error) : OfUnknownOutcome(error);
    one.callback(answer);
  }
}

}  // namespace lathe::engine
