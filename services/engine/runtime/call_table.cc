#include "services/engine/runtime/call_table.h"

#include <utility>

namespace lathe::engine {

CallId CallTable::Add(Callback callback) {
  absl::MutexLock lock(&mu_);
  waiting_.emplace(next_, std::move(callback));
  return next_++;
}

void CallTable::Finish(const Answer& answer) {
  Callback callback;
  {
    absl::MutexLock lock(&mu_);
    const auto found = waiting_.find(answer.call);
    if (found == waiting_.end()) return;
    callback = std::move(found->second);
    waiting_.erase(found);
  }
  callback(answer);
}

void CallTable::FailAll(const ErrorInfo& error) {
  std::map<CallId, Callback> waiting;
  {
    absl::MutexLock lock(&mu_);
    waiting.swap(waiting_);
  }
  for (const auto& [call, callback] : waiting) {
    Answer answer;
    answer.call = call;
    answer.error = error;
    callback(answer);
  }
}

}  // namespace lathe::engine
