#include "services/engine/store/sql/schema.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/protocol.h"
#include "libs/common/status_macros.h"

namespace lathe::engine {
namespace {

constexpr char kReadVersion[] = "SELECT version FROM schema_version";
constexpr char kReadMinProtocol[] = "SELECT min_protocol FROM schema_version";
constexpr char kWriteVersion[] = "UPDATE schema_version SET version = ?";
constexpr char kWriteState[] = "UPDATE schema_version SET version = ?, min_protocol = ?";

// Words of statements after which an older engine's statements fail.
constexpr std::array<const char*, 12> kContracting = {
    "DROP COLUMN",  "DROP TABLE",   "DROP CONSTRAINT", "DROP DEFAULT", "DROP NOT NULL", "RENAME",
    "SET NOT NULL", "UNIQUE INDEX", "ADD CONSTRAINT",  "ADD CHECK",    "ADD UNIQUE",    " TYPE "};

absl::Status CheckExpands(int64_t version, const std::string& text) {
  const std::string sql = absl::AsciiStrToUpper(text);
  const auto refuse = [version](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "migration %d is an expand step and has %s, which engines of the release before do not "
        "survive: make it a contract step of a later release",
        version, what));
  };
  for (const char* const word : kContracting) {
    if (absl::StrContains(sql, word)) return refuse(word);
  }
  const std::vector<std::string> columns = absl::StrSplit(sql, "ADD COLUMN");
  for (size_t i = 1; i < columns.size(); ++i) {
    const std::string column = columns[i].substr(0, columns[i].find_first_of(",;"));
    if (absl::StrContains(column, "NOT NULL") && !absl::StrContains(column, "DEFAULT")) {
      return refuse(absl::StrFormat("the column%s without DEFAULT", column));
    }
  }
  return absl::OkStatus();
}

// The leader makes each index of such a step by itself.
absl::Status CheckOnline(int64_t version, const std::string& text) {
  std::string sql;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "--")) absl::StrAppend(&sql, line, "\n");
  }
  for (absl::string_view statement : absl::StrSplit(sql, ';')) {
    statement = absl::StripAsciiWhitespace(statement);
    if (statement.empty() || absl::StartsWith(statement, "CREATE INDEX ")) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "migration %d is an online step and has a statement that makes no index", version));
  }
  return absl::OkStatus();
}

}  // namespace

Schema OwnSchema() { return {.migrations = Migrations(), .protocol = OwnProtocol().newest}; }

absl::Status CheckSchema(const SchemaState& state, const Schema& own) {
  if (state.version <= own.version() || state.min_protocol <= own.protocol) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "the store has schema version %d, which needs protocol %d, this lathe-engine knows version "
      "%d and has protocol %d: start the newer lathe-engine that wrote it",
      state.version, state.min_protocol, own.version(), own.protocol));
}

absl::Status CheckReadable(const SchemaState& state, const Schema& own) {
  if (state.version >= own.version()) return CheckSchema(state, own);
  return absl::FailedPreconditionError(absl::StrFormat(
      "the store has schema version %d, this lathe-engine has version %d: use the release that "
      "runs, or start this one first",
      state.version, own.version()));
}

SchemaState NextState(const SchemaState& state, const Schema& schema) {
  return {
      .version = state.version + 1,
      .min_protocol = std::max(state.min_protocol, schema.migrations[state.version].unused_since)};
}

absl::Status CheckMigrations(const Schema& schema) {
  for (int64_t version = kProtocolVersion; version <= schema.version(); ++version) {
    const Migration& step = schema.migrations[version - 1];
    if (step.is_online) RETURN_IF_ERROR(CheckOnline(version, step.postgres));
    if (step.unused_since == 0) {
      for (const char* const sql : {step.sqlite, step.postgres}) {
        RETURN_IF_ERROR(CheckExpands(version, sql));
      }
    } else if (step.unused_since >= schema.protocol) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "migration %d removes what is unused since protocol %d, in a release of protocol %d: "
          "engines of the release before still use it",
          version, step.unused_since, schema.protocol));
    }
  }
  return absl::OkStatus();
}

SchemaState ReadSchema(SqlConnection& connection) {
  SchemaState state;
  {
    Query version = connection.Prepare(kReadVersion);
    version.Next();
    state.version = version.Int();
  }
  if (state.version < kProtocolVersion) return state;
  Query min_protocol = connection.Prepare(kReadMinProtocol);
  min_protocol.Next();
  state.min_protocol = min_protocol.Int();
  return state;
}

void WriteSchema(SqlConnection& connection, const SchemaState& state) {
  if (state.version < kProtocolVersion) {
    connection.Prepare(kWriteVersion).Bind(state.version).Run();
  } else {
    connection.Prepare(kWriteState).Bind(state.version, state.min_protocol).Run();
  }
}

}  // namespace lathe::engine
