#include "services/engine/store/postgres/online_indexes.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/common/logging/logging.h"

namespace lathe::engine {
namespace {

// The lock ends with its connection. Its key is "index" in bytes.
constexpr char kTryIndexLock[] = "SELECT pg_try_advisory_lock(452823639416)::integer::bigint";
constexpr char kIndexUnlock[] = "SELECT pg_advisory_unlock(452823639416)";
constexpr char kCountValid[] =
    "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE relname = ? AND pg_table_is_visible(pg_class.oid) AND indisvalid";

constexpr absl::string_view kCreateIndex = "CREATE INDEX ";

struct OnlineIndex {
  std::string name;
  std::string rest;  // of its statement, behind the name
};

// Returns the indexes of a step, whose statements all are "CREATE INDEX name ON …".
std::vector<OnlineIndex> IndexesOf(const Migration& step) {
  std::vector<std::string> lines = absl::StrSplit(step.postgres, '\n');
  std::string sql;
  for (const std::string& line : lines) {
    if (!absl::StartsWith(line, "--")) absl::StrAppend(&sql, line, "\n");
  }
  std::vector<OnlineIndex> indexes;
  for (absl::string_view statement : absl::StrSplit(sql, ';')) {
    statement = absl::StripAsciiWhitespace(statement);
    if (!absl::ConsumePrefix(&statement, kCreateIndex)) continue;
    const std::vector<std::string> parts = absl::StrSplit(statement, absl::MaxSplits(' ', 1));
    indexes.push_back({.name = parts[0], .rest = parts[1]});
  }
  return indexes;
}

bool IsValid(PostgresConnection& connection, const OnlineIndex& index) {
  Query count = connection.Prepare(kCountValid);
  return count.Bind(index.name).Next() && count.Int() > 0;
}

// Returns the indexes that are missing.
std::vector<OnlineIndex> MissingIndexes(PostgresConnection& connection, const Schema& schema) {
  std::vector<OnlineIndex> missing;
  for (const Migration& step : schema.migrations) {
    if (!step.is_online) continue;
    for (OnlineIndex& index : IndexesOf(step)) {
      if (!IsValid(connection, index)) missing.push_back(std::move(index));
    }
  }
  return missing;
}

bool TryIndexLock(PostgresConnection& connection) {
  Query lock = connection.Prepare(kTryIndexLock);
  return lock.Next() && lock.Int() == 1;
}

}  // namespace

bool HasOnlineIndexes(PostgresConnection& connection, const Schema& schema) {
  return MissingIndexes(connection, schema).empty();
}

absl::Status MakeIndexesOnline(PostgresConnection& connection, const Schema& schema) {
  if (HasOnlineIndexes(connection, schema)) return absl::OkStatus();
  if (!TryIndexLock(connection)) return absl::UnavailableError("another engine makes indexes");
  // The engine that had the lock may have made some of them.
  for (const OnlineIndex& index : MissingIndexes(connection, schema)) {
    LogInfo("an index is being made", {{"index", index.name}});
    connection.Execute(absl::StrCat("DROP INDEX CONCURRENTLY IF EXISTS ", index.name));
    connection.Execute(absl::StrCat("CREATE INDEX CONCURRENTLY ", index.name, " ", index.rest));
    LogInfo("index made", {{"index", index.name}});
  }
  connection.Execute(kIndexUnlock);
  return absl::OkStatus();
}

}  // namespace lathe::engine
