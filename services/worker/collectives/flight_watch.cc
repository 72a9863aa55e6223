#include "services/worker/collectives/flight_watch.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::worker {
namespace {

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(20);

}  // namespace

void FlightWatch::Add(const CollectiveOperation& operation,
                      std::shared_ptr<const DeviceEvent> begin,
                      std::shared_ptr<const DeviceEvent> end) {
  Flight flight{.operation = operation,
                .name = std::string(operation.name),
                .begin = std::move(begin),
                .end = std::move(end),
                .started = std::nullopt};
  flight.operation.input = flight.operation.output = at::Tensor();
  absl::MutexLock lock(&mu_);
  flights_.push_back(std::move(flight));
}

void FlightWatch::Run(const std::function<absl::Status()>& check, const OnFailure& on_failure) {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&is_stopping_), kWatchPeriod)) return;
    }
    absl::Status status = check();
    if (status.ok()) status = Look(SteadyNow());
    if (status.ok()) continue;
    Flight oldest = Oldest();
    oldest.operation.name = oldest.name;
    on_failure(oldest.operation, status);
    return;
  }
}

void FlightWatch::Stop() {
  absl::MutexLock lock(&mu_);
  is_stopping_ = true;
}

absl::Status FlightWatch::Look(absl::Time now) {
  absl::MutexLock lock(&mu_);
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    ASSIGN_OR_RETURN(const bool has_ended, HasEndedLocked(*flight, now));
    flight = has_ended ? flights_.erase(flight) : std::next(flight);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FlightWatch::HasEndedLocked(Flight& flight, absl::Time now) {
  const CollectiveOperation& operation = flight.operation;
  if (!flight.started.has_value()) {
    ASSIGN_OR_RETURN(const bool has_begun, flight.begin->IsPassed());
    if (!has_begun) return false;
    flight.started = now;
    recorder_.Started(operation.record);
  }
  ASSIGN_OR_RETURN(const bool has_ended, flight.end->IsPassed());
  if (has_ended) recorder_.Done(operation.record);
  if (!has_ended && now > *flight.started + operation.timeout) {
    return absl::DeadlineExceededError(
        absl::StrFormat("deadline of %s is over", absl::FormatDuration(operation.timeout)));
  }
  return has_ended;
}

FlightWatch::Flight FlightWatch::Oldest() const {
  absl::MutexLock lock(&mu_);
  return flights_.empty() ? Flight() : flights_.front();
}

}  // namespace lathe::worker
