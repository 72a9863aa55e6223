#include "services/engine/readiness.h"

#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

// It hears a tick every second.
constexpr absl::Duration kMaxIdleTime = absl::Seconds(30);

}  // namespace

void Readiness::Follow(Runtime* runtime) {
  absl::MutexLock lock(&mu_);
  runtime_ = runtime;
  was_ready_ = was_ready_ || runtime != nullptr;
}

absl::Status Readiness::IsReady() {
  absl::MutexLock lock(&mu_);
  if (runtime_ != nullptr) return runtime_->CheckRoom();
  return absl::UnavailableError(was_ready_ ? "the engine is stopping"
                                           : "the engine reads its store");
}

absl::Status Readiness::IsLive() {
  absl::MutexLock lock(&mu_);
  if (runtime_ == nullptr) return absl::OkStatus();
  const absl::Duration idle_time = runtime_->CoreIdleTime();
  if (idle_time < kMaxIdleTime) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the core has done nothing for ", absl::FormatDuration(idle_time)));
}

}  // namespace lathe::engine
