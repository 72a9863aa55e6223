#include "services/engine/store/sql/needed_rows.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/engine/store/sql/row_codec.h"

namespace lathe::engine {
namespace {

constexpr char kListPayloads[] = "SELECT body_id FROM payloads";
constexpr int64_t kFailuresKept = int64_t{86400} * 1000000000;

// Requests whose condition an index selects by itself; a request may be of several kinds.
constexpr const char* kNeeded[] = {
    "requests WHERE state < 3",
    // Results that no client has fetched, of ended sessions too: a limit counts them.
    "requests WHERE has_result = 1 AND delivered_at = 0 AND done_at > 0 AND result_bytes > 0",
    // Unfetched results of unknown size. The owner is no key here: it may have millions of other
    // requests.
    "requests WHERE has_result = 1 AND delivered_at = 0 AND done_at > 0 AND result_bytes <= 0"
    " AND (owner_id || '') IN (SELECT id FROM owners)",
};

// Requests that an index finds for each row of a table.
struct NeededOfEach {
  const char* table;
  const char* condition;
};
constexpr NeededOfEach kNeededOfEach[] = {
    // Requests that made the models of live sessions.
    {"live", "owner_id = live.session_id AND op_class = 2"},
    // Results that answer duplicate requests. Clients repeat no training request whose result they
    // have.
    {"owners", "owner_id = owners.id AND has_result = 1 AND op_class <> 1"},
    // Loads, which show the operations that arrived before their outcome was known.
    {"owners", "owner_id = owners.id AND kind = 8"},
    // Facts that the row of the model does not hold.
    {"(SELECT model_id, CASE WHEN closed_seq <= gradient_from_seq AND closed_seq <= log_from_seq"
     "  THEN closed_seq WHEN gradient_from_seq <= log_from_seq THEN gradient_from_seq"
     "  ELSE log_from_seq END AS known_seq"
     " FROM models WHERE session_id IN (SELECT session_id FROM live)) AS live_models",
     "owner_id = model_id AND op_class = 1 AND seq_id > known_seq"},
};
// Failed requests for a day: refused ones have no result. Those whose result a limit removed are
// left out, as they may be many.
constexpr NeededOfEach kFailedOfEach = {
    "owners", "owner_id = owners.id AND state = 4 AND result_bytes >= 0 AND done_at > ?1"};

// All conditions above in one, for a database without their indexes; ?1 is the time from which
// failures count.
constexpr char kNeededPlainly[] =
    "requests WHERE state < 3"
    " OR (has_result = 1 AND delivered_at = 0 AND done_at > 0 AND result_bytes > 0)"
    " OR owner_id IN (SELECT session_id FROM live)"
    " OR (owner_id IN (SELECT id FROM owners)"
    "  AND (kind = 8 OR (state = 4 AND done_at > ?1 AND result_bytes >= 0)"
    "   OR (has_result = 1 AND (op_class <> 1 OR delivered_at = 0))"
    "   OR (op_class = 1 AND EXISTS (SELECT 1 FROM models WHERE model_id = owner_id"
    "    AND (seq_id > closed_seq OR seq_id > gradient_from_seq OR seq_id > log_from_seq)))))";

// Bodies of done forward_backwards (kind 4) that rebuild a live model.
constexpr NeededOfEach kLoggedBodies = {
    "(SELECT model_id, log_from_seq FROM models WHERE state < 2) AS live_models",
    "owner_id = model_id AND op_class = 1 AND seq_id > log_from_seq AND state = 3 AND kind = 4"
    " AND body_id <> ''"};

// Returns the FROM clause for the requests of each row. Postgres would read all requests, because
// it expects that many of them are above a row's seq; SQLite, because it expects few requests.
std::string FromEach(SqlDialect dialect, const NeededOfEach& needed) {
  switch (dialect) {
    case SqlDialect::kSqlite:
      return absl::StrCat(needed.table, " CROSS JOIN requests WHERE ", needed.condition);
    case SqlDialect::kPostgres:
      break;
  }
  return absl::StrCat(needed.table, " CROSS JOIN LATERAL (SELECT * FROM requests WHERE ",
                      needed.condition, " OFFSET 0) AS requests");
}

// Also selects the bodies of unfinished requests.
std::string LiveBodiesSql(SqlDialect dialect) {
  return absl::StrCat(
      "SELECT body_id FROM requests WHERE state < 3 AND body_id <> '' UNION ALL SELECT body_id"
      " FROM ",
      FromEach(dialect, kLoggedBodies));
}

// Reads the ids from their index, and no body.
std::string SweepSql(SqlDialect dialect) {
  return absl::StrCat(
      "DELETE FROM payloads WHERE body_id IN (SELECT body_id FROM payloads EXCEPT"
      " SELECT body_id FROM (",
      LiveBodiesSql(dialect), ") AS live_bodies)");
}

// `rows`: a FROM clause. `live` has the live sessions, `owners` their models and samplers.
std::string SelectSql(const std::string& rows) {
  const std::vector<std::string> columns = absl::StrSplit(kRequestColumns, ", ");
  return absl::StrCat(
      "WITH live AS ", kLiveSessions,
      ", owners (id) AS (SELECT model_id FROM models WHERE session_id IN"
      "  (SELECT session_id FROM live) UNION ALL SELECT sampling_session_id FROM samplers"
      "  WHERE session_id IN (SELECT session_id FROM live))"
      " SELECT requests.",
      absl::StrJoin(columns, ", requests."), ", requests.rowid FROM ", rows);
}

// Statements without parameters; FailedSql binds the time from which failures count.
std::vector<std::string> NeededSql(SqlDialect dialect) {
  std::vector<std::string> all;
  for (const char* const rows : kNeeded) all.push_back(SelectSql(rows));
  for (const NeededOfEach& needed : kNeededOfEach) {
    all.push_back(SelectSql(FromEach(dialect, needed)));
  }
  return all;
}

std::string FailedSql(SqlDialect dialect) { return SelectSql(FromEach(dialect, kFailedOfEach)); }

// A request with the number of its row.
struct Found {
  RequestRow row;
  int64_t rowid = 0;
};

// Collects requests, each once.
class Collector {
 public:
  void Add(Query& query) {
    while (query.Next()) {
      Found found;
      ReadRow(query, found.row);
      found.rowid = query.Int();
      if (rowids_.insert(found.rowid).second) found_.push_back(std::move(found));
    }
  }

  std::vector<RequestRow> Sorted() {
    std::ranges::sort(found_, {}, [](const Found& found) {
      return std::tuple(found.row.accepted_at, found.rowid);
    });
    std::vector<RequestRow> rows;
    rows.reserve(found_.size());
    for (Found& found : found_) rows.push_back(std::move(found.row));
    return rows;
  }

 private:
  std::unordered_set<int64_t> rowids_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<RequestRow> ReadNeededRequests(SqlConnection& connection, int64_t now,
                                           bool has_indexes) {
  Collector collector;
  if (!has_indexes) {
    Query query = connection.Prepare(SelectSql(kNeededPlainly));
    collector.Add(query.Bind(now - kFailuresKept));
    return collector.Sorted();
  }
  for (const std::string& sql : NeededSql(connection.dialect())) {
    Query query = connection.Prepare(sql);
    collector.Add(query);
  }
  Query failed = connection.Prepare(FailedSql(connection.dialect()));
  collector.Add(failed.Bind(now - kFailuresKept));
  return collector.Sorted();
}

std::set<std::string> LiveBodyIds(SqlConnection& connection) {
  std::set<std::string> ids;
  Query query = connection.Prepare(LiveBodiesSql(connection.dialect()));
  while (query.Next()) ids.insert(query.Text());
  return ids;
}

std::set<std::string> LiveBodiesOutside(SqlConnection& connection) {
  std::set<std::string> ids = LiveBodyIds(connection);
  Query rows = connection.Prepare(kListPayloads);
  while (rows.Next()) ids.erase(rows.Text());
  return ids;
}

void SweepPayloads(SqlConnection& connection) {
  connection.Prepare(SweepSql(connection.dialect())).Run();
}

std::vector<std::string> NeededRowsStatements(SqlDialect dialect) {
  std::vector<std::string> all = NeededSql(dialect);
  all.insert(all.end(), {FailedSql(dialect), LiveBodiesSql(dialect), SweepSql(dialect)});
  return all;
}

}  // namespace lathe::engine
