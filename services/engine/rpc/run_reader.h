// Reads the metrics of one run: what is folded, with what is pending applied to it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/runtime/runtime.h"
#include "services/engine/series/run_series.h"

namespace lathe::engine {

// Reads the store. Used by one thread.
class RunReader {
 public:
  // Pending batches are copied before the first read: a batch that is folded meanwhile is in both,
  // and the series know which batches they have.
  RunReader(Runtime& runtime, const std::string& run_id)
      : store_(runtime.store()),
        run_id_(run_id),
        pending_(runtime.series_book().PendingOf(run_id)) {}

  // Returns all metrics. Their tails have only the points that were pending.
  absl::StatusOr<RunSeries> Heads();
  // Returns one metric with its tail. After Heads.
  absl::StatusOr<Series> WithTail(const std::string& name);

 private:
  Store& store_;
  const std::string run_id_;
  const std::vector<RunBatch> pending_;
  RunSeriesRow row_;
};

}  // namespace lathe::engine
