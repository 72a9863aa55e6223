// A shorter timeout for a rank that may no longer run the same code as the others.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe::worker {

// All communicators of a rank share one. The ranks may share a computation that throws on one of
// them. That rank cannot know whether the others threw too or are waiting for it. It proceeds to
// the next common collective and waits there for at most `limit`, which is the time by which one
// rank may lag behind another. Thread-safe.
class WaitLimit {
 public:
  explicit WaitLimit(absl::Duration limit = absl::Seconds(10)) : limit_(limit) {}

  // Limits waits until Lift. `why` is added to the error of a collective that fails meanwhile.
  void Set(std::string why) {
    absl::MutexLock lock(&mu_);
    why_ = std::move(why);
  }
  // Call when the others are known to be at the same collective.
  void Lift() {
    absl::MutexLock lock(&mu_);
    why_.clear();
  }

  absl::Duration Of(absl::Duration timeout) const {
    absl::MutexLock lock(&mu_);
    return why_.empty() ? timeout : std::min(timeout, limit_);
  }
  // Text to append to an error message. Empty while there is no limit.
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
