// Writes of kept metrics: folds of the journal into series, and their end.
#include <algorithm>
#include <span>
#include <string>

#include "absl/strings/str_format.h"
#include "services/engine/store/sql/series_columns.h"
#include "services/engine/store/sql/sql_store.h"
#include "services/engine/store/sql/writes.h"

namespace lathe::engine {
namespace {

constexpr char kTrimJournal[] =
    "DELETE FROM series_journal WHERE journal_id IN"
    " (SELECT journal_id FROM series_journal WHERE journal_id <= ? ORDER BY journal_id LIMIT ?)";
// Changes no row if a later batch is folded already. Journal ids grow from one leader to the next,
// so this fences an engine that leads no longer.
constexpr char kFence[] = " WHERE series_runs.folded_through <= excluded.folded_through";
constexpr char kDropChunks[] =
    "DELETE FROM series_chunks WHERE run_id = ? AND name = ? AND level = ? AND number < ?";

constexpr char kOldestRun[] =
    "SELECT run_id FROM series_runs WHERE last_at < ? ORDER BY last_at LIMIT 1";
constexpr char kDeleteChunks[] =
    "DELETE FROM series_chunks WHERE (run_id, name, level, number) IN"
    " (SELECT run_id, name, level, number FROM series_chunks WHERE run_id = ? LIMIT ?)";
constexpr char kDeleteSeries[] = "DELETE FROM series WHERE run_id = ?";
constexpr char kDeleteRunSeries[] = "DELETE FROM series_runs WHERE run_id = ?";

void PutSeries(SqlConnection& connection, const SeriesRow& row) {
  static const std::string sql =
      UpsertSql("series", absl::StrFormat("%s, tail", kSeriesHeadColumns), "run_id, name");
  connection.Prepare(sql)
      .Bind(row.run_id, row.name, row.unit, row.source, row.folded_through, row.num_points,
            row.num_sealed, row.last_step, row.last_value, row.last_ms)
      .BindBytes(row.tail)
      .Run();
}

void PutChunk(SqlConnection& connection, const SeriesChunkRow& row) {
  static const std::string sql =
      UpsertSql("series_chunks", kSeriesChunkColumns, "run_id, name, level, number");
  connection.Prepare(sql)
      .Bind(row.run_id, row.name, row.level, row.number, row.first_step, row.last_step,
            row.num_buckets)
      .BindBytes(row.bytes)
      .Run();
}

absl::Status PutFold(SqlConnection& connection, const SeriesFold& fold) {
  static const std::string put_run = UpsertSql("series_runs", kRunSeriesColumns, "run_id") + kFence;
  const RunSeriesRow& run = fold.run;
  const int64_t num_changed = connection.Prepare(put_run)
                                  .Bind(run.run_id, run.tenant_id, run.num_steps,
                                        run.folded_through, run.num_series, run.last_at)
                                  .Run();
  if (num_changed == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the metrics of run %s have batches after %d: another engine leads",
                        run.run_id, run.folded_through));
  }
  for (const SeriesRow& row : fold.series) PutSeries(connection, row);
  for (const SeriesChunkRow& row : fold.chunks) PutChunk(connection, row);
  for (const DroppedChunks& old : fold.dropped) {
    connection.Prepare(kDropChunks).Bind(run.run_id, old.name, old.level, old.before_number).Run();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SqlStore::WriteSeries(std::span<const SeriesFold> folds) {
  return ChangeSeries([&](SqlConnection& connection) -> absl::Status {
    for (const SeriesFold& fold : folds) {
      if (absl::Status status = PutFold(connection, fold); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> SqlStore::TrimPointJournal(int64_t through, int64_t max_rows) {
  int64_t num_deleted = 0;
  const absl::Status status = ChangeSeries([&](SqlConnection& connection) {
    num_deleted = connection.Prepare(kTrimJournal).Bind(through, max_rows).Run();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return num_deleted;
}

absl::StatusOr<int64_t> SqlStore::DeleteOldSeries(int64_t before, int64_t max_rows) {
  int64_t num_deleted = 0;
  const absl::Status status = ChangeSeries([&](SqlConnection& connection) {
    num_deleted = 0;
    std::string run_id;
    {
      Query query = connection.Prepare(kOldestRun);
      if (!query.Bind(before).Next()) return absl::OkStatus();
      run_id = query.Text();
    }
    num_deleted = connection.Prepare(kDeleteChunks).Bind(run_id, max_rows).Run();
    if (num_deleted > 0) return absl::OkStatus();
    num_deleted = connection.Prepare(kDeleteSeries).Bind(run_id).Run();
    num_deleted += connection.Prepare(kDeleteRunSeries).Bind(run_id).Run();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return num_deleted;
}

}  // namespace lathe::engine
