// A rank that may have left the path of the others waits for them less long.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe::worker {

// One for all communicators of a rank. Who has thrown where others compute with it does not know
// whether they have too, which is well, or wait for it, so it comes to where all meet next, and
// waits there for no more than what one may be slower than another. Thread-safe.
class WaitLimit {
 public:
  explicit WaitLimit(absl::Duration limit = absl::Seconds(10)) : limit_(limit) {}

  // From now on, until Lift; `why` is added to the error of a collective that fails meanwhile.
  void Set(std::string why) {
    absl::MutexLock lock(&mu_);
    why_ = std::move(why);
  }
  // The others are where this rank is.
  void Lift() {
    absl::MutexLock lock(&mu_);
    why_.clear();
  }

  absl::Duration Of(absl::Duration timeout) const {
    absl::MutexLock lock(&mu_);
    return why_.empty() ? timeout : std::min(timeout, limit_);
  }
  // To be added to a message; empty without a limit.
  std::string Reason() const {
    absl::MutexLock lock(&mu_);
    return why_.empty() ? "" : absl::StrCat("; before, on this rank: ", why_);
  }

 private:
  const absl::Duration limit_;
  mutable absl::Mutex mu_;
  std::string why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::worker
