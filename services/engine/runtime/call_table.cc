#include "services/engine/runtime/call_table.h"

#include <iterator>
#include <utility>

namespace lathe::engine {

CallId CallTable::Add(Callback callback, Time deadline) {
  absl::MutexLock lock(&mu_);
  waiting_.emplace(next_, Waiting{std::move(callback), deadline});
  return next_++;
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
    answer.error = error;
    one.callback(answer);
  }
}

}  // namespace lathe::engine
