#include "services/engine/readiness.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

// The core gets a tick every second.
constexpr absl::Duration kMaxIdleTime = absl::Seconds(30);

// Returns an error if every group is degraded or refused. A group that is only loading is no error.
absl::Status CheckGroups(Runtime& runtime) {
  const auto troubles = runtime.Troubles();
  if (troubles.empty()) return absl::OkStatus();
  for (const GroupRow& group : runtime.directory().Groups()) {
    const bool is_removed = group.base_model.empty();
    if (!is_removed && !troubles.contains(group.group)) return absl::OkStatus();
  }
  const NotifyQueueState& first = troubles.begin()->second;
  const char* const state = first.trouble == GroupTrouble::kRefused ? "refused" : "degraded";
  return absl::UnavailableError(
      absl::StrCat("group ", first.group, " is ", state, ": ",
                   first.reason.empty() ? "its worker has just reattached" : first.reason));
}

}  // namespace

void Readiness::Follow(Runtime* runtime) {
  absl::MutexLock lock(&mu_);
  runtime_ = runtime;
  if (runtime == nullptr) return;
  has_started_ = true;
  reason_ = "the engine is stopping";
}

void Readiness::FollowStandby(const Leadership* leadership) {
  absl::MutexLock lock(&mu_);
  standby_ = leadership;
  has_started_ = has_started_ || leadership != nullptr;
}

void Readiness::Explain(std::string reason) {
  absl::MutexLock lock(&mu_);
  reason_ = std::move(reason);
}

absl::Status Readiness::IsReady() {
  absl::MutexLock lock(&mu_);
  return IsReadyLocked();
}

absl::Status Readiness::IsServing() {
  absl::MutexLock lock(&mu_);
  return standby_ != nullptr ? standby_->CheckStandby() : IsReadyLocked();
}

absl::Status Readiness::HasStarted() {
  absl::MutexLock lock(&mu_);
  return has_started_ ? absl::OkStatus() : absl::UnavailableError(reason_);
}

absl::Status Readiness::IsReadyLocked() {
  if (runtime_ != nullptr) {
    RETURN_IF_ERROR(runtime_->CheckRoom());
    return CheckGroups(*runtime_);
  }
  return absl::UnavailableError(reason_);
}

absl::Status Readiness::IsLive() {
  absl::MutexLock lock(&mu_);
  if (runtime_ == nullptr) return absl::OkStatus();
  const absl::Duration idle_time = runtime_->CoreIdleTime();
  if (idle_time < kMaxIdleTime) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the core has handled no event for ", absl::FormatDuration(idle_time)));
}

}  // namespace lathe::engine
