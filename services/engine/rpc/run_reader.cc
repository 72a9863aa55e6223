#include "services/engine/rpc/run_reader.h"

#include <optional>
#include <utility>

#include "libs/common/status_macros.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {

absl::StatusOr<RunSeries> RunReader::Heads() {
  ASSIGN_OR_RETURN(const std::optional<RunSeriesRow> row, store_.FindRunSeries(run_id_));
  if (row) row_ = *row;
  row_.run_id = run_id_;
  ASSIGN_OR_RETURN(std::vector<SeriesRow> rows, store_.ListSeries(run_id_, /*with_tails=*/false));
  RunSeries run(row_);
  for (SeriesRow& one : rows) RETURN_IF_ERROR(run.Add(std::move(one)));
  for (const RunBatch& batch : pending_) run.Apply(batch, kMaxSeriesPerRun);
  return run;
}

absl::StatusOr<Series> RunReader::WithTail(const std::string& name) {
  ASSIGN_OR_RETURN(std::optional<SeriesRow> row, store_.FindSeries(run_id_, name));
  RunSeries run(row_);
  if (row) RETURN_IF_ERROR(run.Add(*std::move(row)));
  for (const RunBatch& batch : pending_) run.Apply(batch, kMaxSeriesPerRun, &name);
  const auto found = run.series().find(name);
  // Retention may have removed the run meanwhile.
  if (found == run.series().end()) return absl::UnavailableError("the metrics have changed");
  return found->second;
}

}  // namespace lathe::engine
