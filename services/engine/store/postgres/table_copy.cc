#include "services/engine/store/postgres/table_copy.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/files/new_file.h"
#include "libs/common/logging/logging.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

namespace fs = std::filesystem;

constexpr char kTableSuffix[] = ".copy";
constexpr char kSequences[] = "sequences";

constexpr char kListTables[] =
    "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p')"
    " AND relnamespace = current_schema()::regnamespace ORDER BY relname";
constexpr char kListColumns[] =
    "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = ?::regclass AND attnum > 0"
    " AND NOT attisdropped ORDER BY attnum";
// A sequence is no part of a snapshot: its value is the one of now, which is never less. 0: unused.
// The server refuses to tell the value of a sequence that belongs to a table of somebody else.
constexpr char kListSequences[] =
    "SELECT attname::text,"
    " coalesce(pg_sequence_last_value(pg_get_serial_sequence(quote_ident(relname), attname)"
    "::regclass), 0) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
    " WHERE relname = ? AND relkind = 'r' AND relnamespace = current_schema()::regnamespace"
    " AND attnum > 0 AND attidentity <> '' ORDER BY 1";
constexpr char kSetSequence[] =
    "SELECT setval(pg_get_serial_sequence(quote_ident(?), ?), ?::bigint)";

std::vector<std::string> Texts(PostgresConnection& connection, std::string_view sql,
                               const std::vector<std::string>& values = {}) {
  Query query = connection.Prepare(sql);
  for (const std::string& value : values) query.Bind(value);
  std::vector<std::string> texts;
  while (query.Next()) texts.push_back(query.Text());
  return texts;
}

absl::Status WriteTable(PostgresConnection& connection, const std::string& table,
                        const fs::path& path) {
  const std::vector<std::string> columns = Texts(connection, kListColumns, {table});
  NewFile file(path);
  RETURN_IF_ERROR(file.Open());
  absl::Status status = file.Write(absl::StrCat(absl::StrJoin(columns, "\t"), "\n"));
  // The rest of the table has to be read even if the disk is full.
  connection.CopyOut(table, columns, [&](const std::string& line) {
    if (status.ok()) status = file.Write(line);
    if (status.ok()) status = file.Write("\n");
  });
  RETURN_IF_ERROR(status);
  return file.Sync();
}

using Tables = std::set<std::string, std::less<>>;

Tables ListTables(PostgresConnection& connection) {
  const std::vector<std::string> tables = Texts(connection, kListTables);
  return {tables.begin(), tables.end()};
}

void WarnAboutOthers(const Tables& others, const char* what) {
  if (others.empty()) return;
  LogWarn(what, {{"tables", absl::StrJoin(others, ", ")}});
}

Tables Without(const Tables& all, const Tables& some) {
  Tables left;
  std::ranges::set_difference(all, some, std::inserter(left, left.end()));
  return left;
}

// Returns the tables with a file in `dir`.
absl::StatusOr<Tables> CopiedTables(const fs::path& dir) {
  Tables tables;
  std::error_code error;
  fs::directory_iterator it(dir, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kTableSuffix) tables.insert(it->path().stem().string());
  }
  if (!error) return tables;
  return absl::ErrnoToStatus(error.value(), absl::StrFormat("cannot list %s", dir.string()));
}

absl::Status WriteSequences(PostgresConnection& connection, const Tables& tables,
                            const fs::path& path) {
  NewFile file(path);
  RETURN_IF_ERROR(file.Open());
  for (const std::string& table : tables) {
    Query query = connection.Prepare(kListSequences);
    query.Bind(table);
    while (query.Next()) {
      const std::string column = query.Text();
      RETURN_IF_ERROR(file.Write(absl::StrFormat("%s\t%s\t%d\n", table, column, query.Int())));
    }
  }
  return file.Sync();
}

absl::Status ReadTable(PostgresConnection& connection, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string names;
  if (!std::getline(file, names)) {
    return absl::DataLossError(absl::StrFormat("cannot read %s", path.string()));
  }
  const std::string table = path.stem().string();
  // Some steps of the schema insert rows.
  connection.Execute(absl::StrCat("TRUNCATE ", table));
  connection.CopyIn(table, absl::StrSplit(names, '\t'),
                    [&](std::string& line) { return !!std::getline(file, line); });
  if (file.eof()) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("cannot read %s", path.string()));
}

absl::Status ReadSequences(PostgresConnection& connection, const Tables& tables,
                           const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    int64_t value = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[2], &value)) {
      return absl::DataLossError(absl::StrFormat("%s: unknown line %s", path.string(), line));
    }
    if (value == 0 || !tables.contains(parts[0])) continue;
    Query set = connection.Prepare(kSetSequence);
    set.Bind(parts[0], parts[1], value).Next();
  }
  return absl::OkStatus();
}

}  // namespace

bool HasNoTables(PostgresConnection& connection) { return ListTables(connection).empty(); }

std::set<std::string, std::less<>> TablesOf(const Schema& schema) {
  Tables tables = {"schema_version"};
  for (const Migration& step : schema.migrations) {
    const std::vector<std::string> parts = absl::StrSplit(step.postgres, "CREATE TABLE ");
    for (size_t i = 1; i < parts.size(); ++i) {
      tables.insert(parts[i].substr(0, parts[i].find_first_of(" (")));
    }
  }
  return tables;
}

absl::StatusOr<std::vector<std::string>> WriteTables(PostgresConnection& connection,
                                                     int64_t schema_version, const fs::path& dir) {
  const Tables all = ListTables(connection);
  Tables tables = all;
  Schema schema = OwnSchema();
  // Which tables a later release has made is unknown here.
  if (schema_version <= schema.version()) {
    schema.migrations = schema.migrations.first(static_cast<size_t>(schema_version));
    const Tables others = Without(all, TablesOf(schema));
    WarnAboutOthers(others, "tables that are not Lathe's are left out of the backup");
    tables = Without(all, others);
  }
  std::vector<std::string> files;
  for (const std::string& table : tables) {
    files.push_back(table + kTableSuffix);
    RETURN_IF_ERROR(WriteTable(connection, table, dir / files.back()));
  }
  files.emplace_back(kSequences);
  RETURN_IF_ERROR(WriteSequences(connection, tables, dir / kSequences));
  return files;
}

absl::Status CheckTables(PostgresConnection& connection, const fs::path& dir) {
  ASSIGN_OR_RETURN(const Tables copied, CopiedTables(dir));
  const Tables made = ListTables(connection);
  WarnAboutOthers(Without(copied, made), "tables that are not Lathe's are not restored");
  const Tables missing = Without(made, copied);
  if (missing.empty()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s has no table %s", dir.string(), absl::StrJoin(missing, ", ")));
}

absl::Status ReadTables(PostgresConnection& connection, const fs::path& dir) {
  const Tables tables = ListTables(connection);
  for (const std::string& table : tables) {
    RETURN_IF_ERROR(ReadTable(connection, dir / (table + kTableSuffix)));
  }
  return ReadSequences(connection, tables, dir / kSequences);
}

}  // namespace lathe::engine
