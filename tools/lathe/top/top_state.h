// Knowledge of `lathe top`: the newest status, and what has changed since it began.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "protos/lathe/v1/admin.pb.h"

namespace lathe::cli {

// Speed of a group between the last two statuses, a second.
struct GroupRate {
  double train_passes = 0;
  double generated_tokens = 0;
};

struct TopEvent {
  absl::Time time;
  std::string text;
};

class TopState {
 public:
  // `now` is for people, `steady` (SteadyNow) measures.
  void Add(v1::GetStatusResponse status, absl::Time now, absl::Time steady);
  void AddFailure(const absl::Status& why, absl::Time now);

  // The newest status; stays while no answer comes.
  const v1::GetStatusResponse& status() const { return status_; }
  // Time of the first answer that did not come; unset: the last one came.
  std::optional<absl::Time> away_since() const { return away_since_; }
  absl::Time time() const { return time_; }
  // Unset before two statuses with counters of the same workers.
  std::optional<GroupRate> RateOf(const std::string& group) const;
  // The newest 100, oldest first.
  const std::deque<TopEvent>& events() const { return events_; }

 private:
  void Say(absl::Time now, const std::string& text);
  void CompareGroups(const v1::GetStatusResponse& next, absl::Time now);
  void CompareRuns(const v1::GetStatusResponse& next, absl::Time now);
  void Measure(const v1::GetStatusResponse& next, absl::Duration passed);

  v1::GetStatusResponse status_;
  bool has_status_ = false;
  absl::Time time_ = absl::UnixEpoch();
  absl::Time steady_ = absl::UnixEpoch();
  std::optional<absl::Time> away_since_;
  std::map<std::string, GroupRate> rates_;
  std::deque<TopEvent> events_;
};

}  // namespace lathe::cli
