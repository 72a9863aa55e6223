// The engine-series thread, which folds the journal of points into series.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/runtime/series_book.h"
#include "services/engine/series/run_series.h"

namespace lathe::engine {

// Folds runs that have waited or have many points, a few runs in one transaction. It rests for
// three times as long as a fold took, so that commits get most of the store's time. A fold that
// fails is repeated; the journal keeps its points meanwhile. Points of a run whose series are
// damaged are dropped. Also deletes what retention no longer
// keeps. Only the leader has a folder.
class SeriesFolder {
 public:
  // `store`, `book` and what `now_nanos` uses must outlive this object.
  SeriesFolder(const SeriesOptions& options, Store& store, SeriesBook& book,
               std::function<int64_t()> now_nanos);
  // Ends after the fold that runs. The journal keeps what is left.
  ~SeriesFolder();

 private:
  static constexpr size_t kMaxRunsPerFold = 16;
  // Bounds of a transaction, which holds up commits: its rows, unless one run has more, and the
  // points of each run.
  static constexpr size_t kMaxRowsPerFold = 256;
  static constexpr int64_t kMaxPointsPerRun = 2 * SeriesBook::kManyPoints;
  static constexpr int64_t kMaxTrimmedRows = 128;
  static constexpr int64_t kMaxCachedBytes = int64_t{64} << 20;

  struct Cached {
    RunSeries series;
    int64_t bytes = 0;
    std::list<std::string>::iterator age;
  };

  void Run();
  void FoldRuns(const std::vector<std::string>& run_ids);
  // Makes the folds durable in one transaction.
  void Write(const std::vector<SeriesFold>& folds);
  void TryAgain(const std::string& run_id, const absl::Status& status);
  // Applies what is pending to the run's series in memory.
  absl::StatusOr<SeriesFold> Fold(const std::string& run_id, const std::vector<RunBatch>& batches);
  absl::StatusOr<RunSeries*> Find(const std::string& run_id, const std::string& tenant_id);
  void Forget(const std::string& run_id);
  // Measures a run that has changed and drops the least recently used ones above the bound.
  void Evict(const std::string& run_id);
  // Deletes a piece of the journal that every run has folded. Returns whether more may be due.
  bool Trim();
  // Deletes a piece of what is too old. Returns whether more may be due.
  bool DeleteOld();
  // Returns false at the end.
  bool Rest(absl::Duration duration);

  const SeriesOptions options_;
  Store& store_;
  SeriesBook& book_;
  const std::function<int64_t()> now_nanos_;
  // The next members are used by the thread alone.
  std::unordered_map<std::string, Cached> cache_;  // by run
  std::list<std::string> ages_;                    // least recently used first
  int64_t cached_bytes_ = 0;
  size_t runs_per_fold_ = kMaxRunsPerFold;  // fewer after a failure
  int64_t trimmed_through_ = 0;
  absl::Time deletes_at_ = absl::InfinitePast();
  absl::Time trims_at_ = absl::InfinitePast();
  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  NamedThread thread_;
};

}  // namespace lathe::engine
