// Points of metrics that are durable in the journal and not yet in their series.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/engine/series/points.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

struct SeriesOptions {
  // Time for which the metrics of a run stay after its last point; zero: no metrics are kept.
  absl::Duration keep = absl::Hours(400 * 24);
  // Points of a series that stay at full resolution.
  int64_t keep_points_per_series = 1'000'000;
  // Series of all runs of a tenant; 0: no limit.
  int64_t max_series_per_tenant = 200'000;

  bool is_on() const { return keep > absl::ZeroDuration(); }
};

// Mirrors the journal in memory, so that queries see points before their fold. The store's thread
// adds batches, and the folder removes them. Thread-safe.
class SeriesBook {
 public:
  // Points of users are refused above this memory, and those of results are dropped: of all tenants
  // together, and of one. Reached only if the folder fails for long, or falls behind a tenant.
  static constexpr int64_t kMaxPendingBytes = int64_t{256} << 20;
  static constexpr int64_t kMaxTenantPendingBytes = int64_t{64} << 20;
  // A run is folded once it has so many points, or its oldest one waits for kMaxAge.
  static constexpr int64_t kManyPoints = 4096;
  static constexpr absl::Duration kMaxAge = absl::Seconds(5);
  // Rows of the journal in one read. A row has a megabyte or two at most.
  static constexpr int64_t kRowsPerPage = 32;

  // `store` must outlive this object.
  explicit SeriesBook(Store& store) : store_(store) {}

  // Reads what an earlier engine has left in the journal, page by page. Rows that cannot be
  // unpacked are skipped and counted. When the store fails or too much waits, the rest is for a
  // later call. Not concurrent with itself.
  void Load();
  // False until the whole journal was read. Until then the book is full: a batch may not come
  // before those of an earlier engine.
  bool is_loaded() const;
  // Records a batch that is durable.
  void OnDurable(int64_t journal_id, const std::vector<PointEntryPtr>& entries);
  // True if points of the tenant have no room.
  bool is_full(const std::string& tenant_id) const;

  // Returns the run's oldest batches that may not be folded yet, in order: at least one, and no
  // more once they have `max_points`.
  std::vector<RunBatch> PendingOf(const std::string& run_id,
                                  int64_t max_points = std::numeric_limits<int64_t>::max()) const;

  // Returns up to `max_runs` runs to fold, the oldest first. They are not returned again before
  // Folded or PutBack.
  std::vector<std::string> TakeDue(absl::Time now, size_t max_runs);
  // The run's batches up to this id are in its series.
  void Folded(const std::string& run_id, int64_t through);
  // The same, but the batches are lost.
  void Drop(const std::string& run_id, int64_t through);
  // The fold failed.
  void PutBack(const std::string& run_id);
  // Returns the id up to which every batch is folded.
  int64_t FoldedThrough() const;

  // Returns the number of a tenant's series. Reads the store the first time.
  absl::StatusOr<int64_t> NumSeriesOf(const std::string& tenant_id);
  void AddSeries(const std::string& tenant_id, int64_t count);
  // Makes the next call read the store again, after runs were deleted.
  void ForgetCounts();

  // Counts points for the page of metrics.
  void CountPoints(int64_t num_kept, int64_t num_dropped);
  struct Counts {
    int64_t num_kept = 0;
    int64_t num_dropped = 0;
    int64_t num_pending = 0;  // points in the journal
    int64_t num_damaged = 0;  // rows of the journal and folds that met damaged bytes
  };
  Counts counts() const;

 private:
  struct Pending {
    std::deque<RunBatch> batches;
    int64_t num_points = 0;
    absl::Time since;  // monotonic
    bool is_taken = false;
  };

  void AddBytesLocked(const std::string& tenant_id, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the number of points in them.
  int64_t RemoveLocked(const std::string& run_id, int64_t through)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds rows of the journal to what is pending.
  void AddPage(const std::vector<JournalRow>& rows);
  void AddLocked(int64_t journal_id, const std::vector<PointEntryPtr>& entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store& store_;
  mutable absl::Mutex mu_;
  bool is_loaded_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<std::string, Pending> runs_ ABSL_GUARDED_BY(mu_);
  // Runs with batches, in the order in which their oldest came. May name runs without any.
  std::deque<std::string> by_age_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> large_ ABSL_GUARDED_BY(mu_);  // runs with kManyPoints
  // Number of runs that have not folded a batch, by its id.
  std::map<int64_t, int64_t> unfolded_ ABSL_GUARDED_BY(mu_);
  int64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::unordered_map<std::string, int64_t> pending_bytes_of_ ABSL_GUARDED_BY(mu_);  // by tenant
  std::unordered_map<std::string, int64_t> num_series_ ABSL_GUARDED_BY(mu_);        // by tenant
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
