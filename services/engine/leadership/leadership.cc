#include "services/engine/leadership/leadership.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/logging/logging.h"
#include "services/engine/leadership/process_name.h"

namespace lathe::engine {
namespace {

std::string Describe(const LeaseRow& lease) {
  if (lease.duration == absl::ZeroDuration()) return "none yet";
  return absl::StrCat(DescribeProcess(lease.process), " at ", lease.address);
}

}  // namespace

absl::Status Leadership::Check(const Options& options) {
  if (options.lease < kMinLease || options.lease > kMaxLease) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lease is %s, expected %s to %s", absl::FormatDuration(options.lease),
                        absl::FormatDuration(kMinLease), absl::FormatDuration(kMaxLease)));
  }
  const absl::Duration max_renewal = options.lease / kMinRenewals;
  if (options.renewal < kMinRenewal || options.renewal > max_renewal) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lease_renewal is %s, expected %s to a third of lease, %s",
                        absl::FormatDuration(options.renewal), absl::FormatDuration(kMinRenewal),
                        absl::FormatDuration(max_renewal)));
  }
  return absl::OkStatus();
}

Leadership::Leadership(Options options, Store& store,
                       std::function<void(const absl::Status&)> on_lost, Now now)
    : options_(std::move(options)),
      store_(store),
      on_lost_(std::move(on_lost)),
      now_(std::move(now)),
      watch_(options_.process, HasEnded),
      hold_(options_.lease),
      read_at_(now_()) {}

bool Leadership::TryLead() {
  const absl::StatusOr<LeaseRow> lease = store_.ReadLease();
  if (!lease.ok()) {
    watch_.Forget();
    SetLeader(absl::StrCat("unknown: ", lease.status().message()));
    return false;
  }
  NoteLook();
  SetLeader(Describe(*lease));
  if (!watch_.IsFree(*lease, now_())) return false;
  const absl::Time asked_at = now_();
  const absl::StatusOr<int64_t> term = store_.TakeLease(
      *lease,
      {.process = options_.process, .address = options_.address, .duration = options_.lease});
  // Another engine was faster or the store is unavailable; the next call finds out.
  if (!term.ok()) return false;
  term_ = *term;
  hold_.Renew(asked_at);
  LogInfo("leading", {{"term", term_}});
  return true;
}

void Leadership::SetLeader(std::string leader) {
  absl::MutexLock lock(&mu_);
  if (leader_ != leader) LogInfo("standby", {{"leader", leader}});
  leader_ = std::move(leader);
}

void Leadership::NoteLook() {
  absl::MutexLock lock(&mu_);
  read_at_ = now_();
}

absl::Status Leadership::CheckStandby() const {
  absl::MutexLock lock(&mu_);
  const absl::Duration age = now_() - read_at_;
  if (age < options_.lease) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("this standby could not read the lease for ",
                   absl::FormatDuration(absl::Trunc(age, absl::Seconds(1))), "; leader ", leader_));
}

std::string Leadership::leader() const {
  absl::MutexLock lock(&mu_);
  return leader_;
}

void Leadership::StartRenewing() {
  renewing_ = std::make_unique<PeriodicTask>("engine-lease", options_.renewal, [this] { Renew(); });
}

void Leadership::Renew() {
  const absl::Time asked_at = now_();
  const absl::Status status = store_.RenewLease(term_);
  if (absl::IsFailedPrecondition(status)) {
    hold_.End();
    return on_lost_(status);
  }
  if (status.ok()) hold_.Renew(asked_at);
  const bool is_late = !MaySpeak();
  if (is_late && !std::exchange(is_late_, true)) {
    LogWarn("the lease has run out: nothing is answered until it can be renewed",
            {{"term", term_}, {"error", status.message()}});
  } else if (!is_late && std::exchange(is_late_, false)) {
    LogInfo("the lease is renewed, and no other engine has led meanwhile", {{"term", term_}});
  }
}

void Leadership::Resign() {
  renewing_.reset();
  hold_.End();
  const absl::Status status = store_.ReleaseLease(term_);
  if (!status.ok()) {
    LogWarn("the lease was not released, standbys wait for its end", {{"error", status.message()}});
  }
}

}  // namespace lathe::engine
