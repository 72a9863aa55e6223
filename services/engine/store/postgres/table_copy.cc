#include "services/engine/store/postgres/table_copy.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/common/files/new_file.h"
#include "libs/common/status_macros.h"
#include "services/engine/store/postgres/migrate.h"

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
constexpr char kListSequences[] =
    "SELECT relname::text, attname::text,"
    " coalesce(pg_sequence_last_value(pg_get_serial_sequence(quote_ident(relname), attname)"
    "::regclass), 0) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
    " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND attnum > 0"
    " AND attidentity <> '' ORDER BY 1, 2";
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

absl::Status WriteSequences(PostgresConnection& connection, const fs::path& path) {
  NewFile file(path);
  RETURN_IF_ERROR(file.Open());
  Query query = connection.Prepare(kListSequences);
  while (query.Next()) {
    const std::string table = query.Text();
    const std::string column = query.Text();
    RETURN_IF_ERROR(file.Write(absl::StrFormat("%s\t%s\t%d\n", table, column, query.Int())));
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

absl::Status ReadSequences(PostgresConnection& connection, const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    int64_t value = 0;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[2], &value)) {
      return absl::DataLossError(absl::StrFormat("%s: unknown line %s", path.string(), line));
    }
    if (value == 0) continue;
    Query set = connection.Prepare(kSetSequence);
    set.Bind(parts[0], parts[1], value).Next();
  }
  return absl::OkStatus();
}

}  // namespace

bool HasNoTables(PostgresConnection& connection) { return Texts(connection, kListTables).empty(); }

absl::Status WriteTables(PostgresConnection& connection, const fs::path& dir) {
  for (const std::string& table : Texts(connection, kListTables)) {
    RETURN_IF_ERROR(WriteTable(connection, table, dir / (table + kTableSuffix)));
  }
  return WriteSequences(connection, dir / kSequences);
}

absl::Status ReadTables(PostgresConnection& connection, const Schema& schema, const fs::path& dir) {
  std::vector<fs::path> tables;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == kTableSuffix) tables.push_back(entry.path());
  }
  std::ranges::sort(tables);
  connection.Begin();
  MakeSchema(connection, schema);
  for (const fs::path& table : tables) RETURN_IF_ERROR(ReadTable(connection, table));
  RETURN_IF_ERROR(ReadSequences(connection, dir / kSequences));
  connection.Commit();
  connection.Execute("ANALYZE");
  return absl::OkStatus();
}

}  // namespace lathe::engine
