#include "services/engine/leadership/lease_watch.h"

namespace lathe::engine {
namespace {

// Margin for clock rates, which differ by far less between two machines.
constexpr double kMargin = 1.1;

}  // namespace

bool LeaseWatch::IsFree(const LeaseRow& lease, absl::Time now) {
  if (lease.duration == absl::ZeroDuration()) return true;
  // The process itself may hold the lease, if the response to its TakeLease was lost.
  if (lease.process == process_ || has_ended_(lease.process)) return true;
  if (!seen_ || seen_->term != lease.term || seen_->num_renewals != lease.num_renewals) {
    seen_ = Seen{.term = lease.term, .num_renewals = lease.num_renewals, .since = now};
    return false;
  }
  return now - seen_->since >= lease.duration * kMargin;
}

}  // namespace lathe::engine
