// Checks users' points against the newest points of their series, before they are made durable.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/series_book.h"
#include "services/engine/series/points.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Knows the newest step of each series of the runs that users have appended to lately. Thread-safe.
class SeriesHeads {
 public:
  // `store` and `book` must outlive this object.
  SeriesHeads(Store& store, SeriesBook& book, const SeriesOptions& options)
      : store_(store), book_(book), options_(options) {}

  // Gives the points to the commits. Returns an error to refuse them.
  using Enqueue = std::function<absl::Status(const PointEntryPtr&)>;

  // Checks a user's points and calls `enqueue` with them, under the lock, so that points are
  // enqueued in the order of their checks. Those that are stored already or on their way, because a
  // client repeats its call, are left out. When `enqueue` has taken the points, the caller must
  // call Release once they are durable; otherwise nothing has changed. May read the store. Errors,
  // which name the point:
  //   bad_step          a point is older than the newest one of its metric and was not appended
  //   reserved_metric   the server writes this metric
  //   too_many_metrics  a run may have 500, of users 400, and a tenant has a bound
  absl::Status Append(PointEntry entry, const Enqueue& enqueue);
  // The entry is durable.
  void Release(const PointEntryPtr& entry);

 private:
  static constexpr size_t kMaxRuns = 4096;

  struct Head {
    int64_t last_step = 0;
    SeriesSource source = SeriesSource::kUsers;
  };
  struct Run {
    std::map<std::string, Head> heads;  // by name
    std::list<PointEntryPtr> in_flight;
    std::list<std::string>::iterator age;
  };

  absl::StatusOr<std::map<std::string, Head>> Load(const std::string& run_id);
  // Reads the heads of a run. Those that are known already stay, because points are on their way.
  absl::Status Refresh(const std::string& run_id);
  // Adds heads to those of the run, and makes it the most recently used one.
  void MergeLocked(const std::string& run_id, std::map<std::string, Head> heads)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True if the run is known, with all metrics of the entry.
  bool IsKnown(const PointEntry& entry);
  // Checks the points. Returns the heads that they move. `old` gets the indexes of points behind
  // their heads.
  absl::StatusOr<std::map<std::string, Head>> CheckLocked(const Run& run, const PointEntry& entry,
                                                          int64_t tenant_room,
                                                          std::vector<size_t>& old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes those of the `old` points that are stored with the same value. Returns bad_step for
  // the others.
  absl::Status DropStored(PointEntry& entry, const std::vector<size_t>& old);
  absl::StatusOr<bool> IsStored(const std::string& run_id, const NamedPoint& point,
                                std::map<std::string, std::vector<Point>>& recent);
  // Returns the newest points of a metric: its tail, and a chunk before a short tail.
  absl::StatusOr<std::vector<Point>> RecentOf(const std::string& run_id, const std::string& name);

  Store& store_;
  SeriesBook& book_;
  const SeriesOptions options_;
  absl::Mutex mu_;
  std::unordered_map<std::string, Run> runs_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> ages_ ABSL_GUARDED_BY(mu_);  // least recently used first
};

}  // namespace lathe::engine
