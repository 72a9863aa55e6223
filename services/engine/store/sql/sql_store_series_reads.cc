// Reads of kept metrics: the journal at a start, series and their chunks.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/store/sql/series_columns.h"
#include "services/engine/store/sql/sql_store.h"

namespace lathe::engine {
namespace {

constexpr char kReadJournal[] =
    "SELECT journal_id, bytes FROM series_journal WHERE journal_id > ? ORDER BY journal_id LIMIT ?";
constexpr char kReadChunks[] =
    " FROM series_chunks WHERE run_id = ? AND name = ? AND level = ? AND number >= ?"
    " AND number < ? AND last_step >= ? AND first_step <= ? ORDER BY number";
constexpr char kCountBuckets[] =
    "SELECT CAST(coalesce(sum(num_buckets), 0) AS BIGINT) FROM series_chunks"
    " WHERE run_id = ? AND name = ? AND level = ? AND last_step >= ? AND first_step <= ?";
constexpr char kFirstChunk[] =
    "SELECT number FROM series_chunks WHERE run_id = ? AND name = ? AND level = ?"
    " ORDER BY number LIMIT 1";
constexpr char kCountSeries[] =
    "SELECT CAST(coalesce(sum(num_series), 0) AS BIGINT) FROM series_runs WHERE tenant_id = ?";

SeriesRow ReadHead(Query& query) {
  SeriesRow row;
  row.run_id = query.Text();
  row.name = query.Text();
  row.unit = query.Text();
  row.source = static_cast<SeriesSource>(query.Int());
  row.folded_through = query.Int();
  row.num_points = query.Int();
  row.num_sealed = query.Int();
  row.last_step = query.Int();
  row.last_value = query.Real();
  row.last_ms = query.Int();
  return row;
}

}  // namespace

absl::StatusOr<std::vector<JournalRow>> SqlStore::ReadPointJournal(int64_t after,
                                                                   int64_t max_rows) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::vector<JournalRow>> {
    Query query = connection.Prepare(kReadJournal);
    query.Bind(after, max_rows);
    std::vector<JournalRow> rows;
    while (query.Next()) {
      JournalRow& row = rows.emplace_back();
      row.journal_id = query.Int();
      row.bytes = query.Bytes();
    }
    return rows;
  });
}

absl::StatusOr<std::optional<RunSeriesRow>> SqlStore::FindRunSeries(const std::string& run_id) {
  static const std::string sql =
      absl::StrCat("SELECT ", kRunSeriesColumns, " FROM series_runs WHERE run_id = ?");
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<RunSeriesRow>> {
    Query query = connection.Prepare(sql);
    if (!query.Bind(run_id).Next()) return std::nullopt;
    RunSeriesRow row;
    row.run_id = query.Text();
    row.tenant_id = query.Text();
    row.num_steps = query.Int();
    row.folded_through = query.Int();
    row.num_series = query.Int();
    row.last_at = query.Int();
    return row;
  });
}

absl::StatusOr<std::vector<SeriesRow>> SqlStore::ListSeries(const std::string& run_id,
                                                            bool with_tails) {
  const std::string sql = absl::StrCat("SELECT ", kSeriesHeadColumns, with_tails ? ", tail" : "",
                                       " FROM series WHERE run_id = ? ORDER BY name");
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<SeriesRow>> {
    Query query = connection.Prepare(sql);
    query.Bind(run_id);
    std::vector<SeriesRow> rows;
    while (query.Next()) {
      rows.push_back(ReadHead(query));
      if (with_tails) rows.back().tail = query.Bytes();
    }
    return rows;
  });
}

absl::StatusOr<std::optional<SeriesRow>> SqlStore::FindSeries(const std::string& run_id,
                                                              const std::string& name) {
  static const std::string sql = absl::StrCat("SELECT ", kSeriesHeadColumns,
                                              ", tail FROM series WHERE run_id = ? AND name = ?");
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<SeriesRow>> {
    Query query = connection.Prepare(sql);
    if (!query.Bind(run_id, name).Next()) return std::nullopt;
    SeriesRow row = ReadHead(query);
    row.tail = query.Bytes();
    return row;
  });
}

absl::StatusOr<std::vector<SeriesChunkRow>> SqlStore::ReadSeriesChunks(const std::string& run_id,
                                                                       const std::string& name,
                                                                       int64_t level,
                                                                       const ChunkRange& range) {
  static const std::string sql = absl::StrCat("SELECT ", kSeriesChunkColumns, kReadChunks);
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<std::vector<SeriesChunkRow>> {
    Query query = connection.Prepare(sql);
    query.Bind(run_id, name, level, range.from_number, range.before_number, range.from_step,
               range.to_step);
    std::vector<SeriesChunkRow> rows;
    while (query.Next()) {
      SeriesChunkRow& row = rows.emplace_back();
      row.run_id = query.Text();
      row.name = query.Text();
      row.level = query.Int();
      row.number = query.Int();
      row.first_step = query.Int();
      row.last_step = query.Int();
      row.num_buckets = query.Int();
      row.bytes = query.Bytes();
    }
    return rows;
  });
}

absl::StatusOr<int64_t> SqlStore::CountSeriesBuckets(const std::string& run_id,
                                                     const std::string& name, int64_t level,
                                                     int64_t from_step, int64_t to_step) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<int64_t> {
    Query query = connection.Prepare(kCountBuckets);
    query.Bind(run_id, name, level, from_step, to_step).Next();
    return query.Int();
  });
}

absl::StatusOr<std::optional<int64_t>> SqlStore::FirstSeriesChunk(const std::string& run_id,
                                                                  const std::string& name,
                                                                  int64_t level) {
  return Reading([&](SqlConnection& connection) -> absl::StatusOr<std::optional<int64_t>> {
    Query query = connection.Prepare(kFirstChunk);
    if (!query.Bind(run_id, name, level).Next()) return std::nullopt;
    return query.Int();
  });
}

absl::StatusOr<int64_t> SqlStore::CountSeries(const std::string& tenant_id) {
  return Listing([&](SqlConnection& connection) -> absl::StatusOr<int64_t> {
    Query query = connection.Prepare(kCountSeries);
    query.Bind(tenant_id).Next();
    return query.Int();
  });
}

}  // namespace lathe::engine
