#include "services/engine/store/sql/purge.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lathe::engine {
namespace {

// The piece's last row is found first, so that ties in time do not make a piece larger.
struct Statements {
  std::string find_end;  // binds: bounds of the piece, number of rows before its last one
  std::vector<std::string> changes;
};

// Returns the statements that delete results in the order of the column `at`. `kept` is the
// condition of the column's index. Parameters: the last row of the piece. It is due, so the piece
// needs no other bound. SQLite seeks by the first bound alone and would walk all that is due.
Statements OfResults(const char* at, const char* kept) {
  const std::string in_piece = absl::StrCat("SELECT request_id FROM requests WHERE ", at,
                                            " <= ?1 AND (", at, " < ?1 OR rowid <= ?2) AND ", kept);
  return {
      .find_end = absl::StrCat("SELECT ", at, ", rowid FROM requests WHERE ", at, " < ?1 AND ",
                               kept, " ORDER BY ", at, ", rowid LIMIT 1 OFFSET ?2"),
      .changes = {
          absl::StrCat("DELETE FROM results WHERE request_id IN (", in_piece, ")"),
          absl::StrCat("UPDATE requests SET has_result = 0, result_bytes = 0 WHERE request_id IN (",
                       in_piece, ")")}};
}

// Returns the statements that delete request rows. The piece begins behind a row, because rows that
// rebuild a live model stay. Parameters: the row before the piece, and the time before which rows
// are due or the last row of the piece. The bounds that SQLite seeks by come first.
Statements OfRows() {
  const std::string behind = "done_at >= ?1 AND (done_at > ?1 OR rowid > ?2) AND done_at > 0";
  const std::string in_piece = absl::StrCat(
      "SELECT request_id FROM requests WHERE done_at <= ?3 AND (done_at < ?3 OR rowid <= ?4) AND ",
      behind,
      " AND NOT (op_class = 1 AND EXISTS (SELECT 1 FROM models WHERE model_id = owner_id"
      "  AND seq_id > log_from_seq AND models.state < 2))"
      " AND NOT (op_class = 2 AND EXISTS (SELECT 1 FROM sessions WHERE session_id = owner_id"
      "  AND sessions.state < 2))");
  return {.find_end = absl::StrCat("SELECT done_at, rowid FROM requests WHERE done_at < ?3 AND ",
                                   behind, " ORDER BY done_at, rowid LIMIT 1 OFFSET ?4"),
          .changes = {absl::StrCat("DELETE FROM results WHERE request_id IN (", in_piece, ")"),
                      absl::StrCat("DELETE FROM requests WHERE request_id IN (", in_piece, ")")}};
}

const Statements& OfDone() {
  static const Statements statements = OfResults("done_at", "has_result = 1");
  return statements;
}

const Statements& OfDelivered() {
  static const Statements statements =
      OfResults("delivered_at", "has_result = 1 AND delivered_at > 0");
  return statements;
}

const Statements& OfRequestRows() {
  static const Statements statements = OfRows();
  return statements;
}

constexpr char kDeleteUsage[] =
    "DELETE FROM usage WHERE (tenant_id, hour, session_id, base_model) IN"
    " (SELECT tenant_id, hour, session_id, base_model FROM usage WHERE hour < ?1"
    "  ORDER BY hour LIMIT ?2)";

using RowPlace = std::pair<int64_t, int64_t>;  // a time and the rowid of a row with it

// Binds the bounds and the number of rows before the piece's last one.
template <typename... Bounds>
std::optional<RowPlace> FindEnd(SqlConnection& connection, const Statements& statements,
                                int64_t max_rows, const Bounds&... bounds) {
  Query query = connection.Prepare(statements.find_end);
  if (!query.Bind(bounds..., max_rows - 1).Next()) return std::nullopt;
  const int64_t at = query.Int();
  return RowPlace(at, query.Int());
}

// Returns the number of rows that the last statement changed.
template <typename... Bounds>
int64_t Change(SqlConnection& connection, const Statements& statements, const Bounds&... bounds) {
  int64_t num_changed = 0;
  for (const std::string& change : statements.changes) {
    num_changed = connection.Prepare(change).Bind(bounds...).Run();
  }
  return num_changed;
}

int64_t DeleteResults(SqlConnection& connection, const Statements& statements, int64_t before,
                      int64_t max_rows, PurgePass& pass, PurgePass::Phase next) {
  const std::optional<RowPlace> end = FindEnd(connection, statements, max_rows, before);
  if (!end) pass.phase = next;
  const RowPlace last = end.value_or(RowPlace(before, 0));
  return Change(connection, statements, last.first, last.second);
}

int64_t DeleteRows(SqlConnection& connection, int64_t max_rows, PurgePass& pass) {
  const int64_t before = pass.what.rows_before;
  const std::optional<RowPlace> end =
      FindEnd(connection, OfRequestRows(), max_rows, pass.rows_at, pass.rows_rowid, before);
  if (!end) pass.phase = PurgePass::Phase::kUsage;
  const RowPlace last = end.value_or(RowPlace(before, 0));
  const int64_t num_deleted =
      Change(connection, OfRequestRows(), pass.rows_at, pass.rows_rowid, last.first, last.second);
  std::tie(pass.rows_at, pass.rows_rowid) = last;
  return num_deleted;
}

int64_t DeleteUsage(SqlConnection& connection, int64_t max_rows, PurgePass& pass) {
  const int64_t num_deleted =
      connection.Prepare(kDeleteUsage).Bind(pass.what.usage_before, max_rows).Run();
  if (num_deleted < max_rows) pass.phase = PurgePass::Phase::kOver;
  return num_deleted;
}

}  // namespace

int64_t DeletePiece(SqlConnection& connection, int64_t max_rows, PurgePass& pass) {
  switch (pass.phase) {
    case PurgePass::Phase::kDone:
      return DeleteResults(connection, OfDone(), pass.what.done_before, max_rows, pass,
                           PurgePass::Phase::kDelivered);
    case PurgePass::Phase::kDelivered:
      return DeleteResults(connection, OfDelivered(), pass.what.delivered_before, max_rows, pass,
                           PurgePass::Phase::kRows);
    case PurgePass::Phase::kRows:
      return DeleteRows(connection, max_rows, pass);
    case PurgePass::Phase::kUsage:
      return DeleteUsage(connection, max_rows, pass);
    case PurgePass::Phase::kOver:
      break;
  }
  return 0;
}

int64_t NextPieceRows(int64_t max_rows, absl::Duration took) {
  const int64_t fitting = took > absl::ZeroDuration()
                              ? static_cast<int64_t>(static_cast<double>(max_rows) *
                                                     absl::FDivDuration(kPieceTime, took))
                              : kMaxPurgedRows;
  const int64_t near = std::clamp(fitting, max_rows / 2, max_rows * 2);
  return std::clamp(near, kMinPurgedRows, kMaxPurgedRows);
}

std::vector<std::string> PurgeStatements() {
  std::vector<std::string> all = {kDeleteUsage};
  for (const Statements* statements : {&OfDone(), &OfDelivered(), &OfRequestRows()}) {
    all.push_back(statements->find_end);
    all.insert(all.end(), statements->changes.begin(), statements->changes.end());
  }
  return all;
}

}  // namespace lathe::engine
