// Promises of the SQLite store alone: pragmas, schema versions, death between commits.
#include "services/engine/store/sqlite/sqlite_store.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/engine/store/sql/schema.h"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/purge.h"
#include "services/engine/store/sql/session_search.h"
#include "services/engine/store/sqlite/connection.h"
#include "services/engine/store/sqlite/sqlite_harness.h"
#include "services/engine/store/testing/later_schemas.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

// Commits sessions s0, s1, … without end. Reports each on `report_fd` once it is durable.
[[noreturn]] void CommitForEver(const SqliteStore::Options& options, int report_fd) {
  auto store = *SqliteStore::Open(options);
  const int64_t term = store->TakeLeadership()->term;
  for (int i = 0;; ++i) {
    const std::array<Write, 1> writes = {PutSession{TestSession("s" + std::to_string(i))}};
    if (!store->Commit(term, writes, {}).ok()) _exit(1);
    const char byte = 'x';
    if (write(report_fd, &byte, 1) != 1) _exit(1);
  }
}

TEST_CASE("SqliteStore: WAL and incremental vacuum are set from the first migration", "[store]") {
  SqliteHarness harness;
  Connection connection(harness.options().database.string(), SQLite::OPEN_READONLY);
  CHECK(ReadInt(connection, "PRAGMA auto_vacuum") == 2);
  Query mode = connection.Prepare("PRAGMA journal_mode");
  mode.Next();
  CHECK(mode.Text() == "wal");
}

// Returns the steps of the plan, one a line.
std::string PlanOf(Connection& connection, const std::string& sql) {
  Query plan = connection.Prepare(absl::StrCat("EXPLAIN QUERY PLAN ", sql));
  std::string text;
  while (plan.Next()) {
    for (int i = 0; i < 3; ++i) plan.Int();  // numbers of the step
    absl::StrAppend(&text, plan.Text(), "\n");
  }
  return text;
}

// Requests of model m that are done, delivered, and have a result. Their times are their seqs.
constexpr char kInsertDone[] =
    "INSERT INTO requests (request_id, tenant_id, owner_id, op_class, seq_id, kind, state,"
    " content_hash, body_id, body_bytes, tokens, plan, epoch, accepted_at, done_at, delivered_at,"
    " has_result) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    " SELECT 'r' || i, 't', 'm', 1, i, 4, 3, '', '', 0, 0, '', 0, i, i, i, 1 FROM n";
// Steps of a statement that looks at a few of these rows. Each row that it looks at takes a few.
constexpr int64_t kMaxSteps = 2'000;

// Returns the number of steps of SQLite's machine that `sql` takes.
int64_t StepsOf(sqlite3* database, const std::string& sql, const std::vector<int64_t>& values) {
  sqlite3_stmt* statement = nullptr;
  REQUIRE(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_bind_parameter_count(statement) == static_cast<int>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    REQUIRE(sqlite3_bind_int64(statement, static_cast<int>(i) + 1, values[i]) == SQLITE_OK);
  }
  while (sqlite3_step(statement) == SQLITE_ROW) {
  }
  const int steps = sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, /*resetFlg=*/0);
  CHECK(sqlite3_finalize(statement) == SQLITE_OK);
  return steps;
}

TEST_CASE("SqliteStore: a new leader finds requests and bodies by index", "[store]") {
  SqliteHarness harness;
  Connection connection(harness.options().database.string(), SQLite::OPEN_READONLY);
  for (const std::string& sql : NeededRowsStatements(SqlDialect::kSqlite)) {
    // Bodies are few and large; their ids are read from the index of the ids.
    const std::string text = absl::StrReplaceAll(
        PlanOf(connection, sql),
        {{"SCAN payloads USING COVERING INDEX sqlite_autoindex_payloads_1", "ids of payloads"}});
    INFO(sql << "\n" << text);
    CHECK_THAT(text, Catch::Contains("SEARCH requests USING INDEX") &&
                         !Catch::Contains("SCAN requests") && !Catch::Contains("SCAN payloads"));
  }
}

TEST_CASE("SqliteStore: a new leader does not look at the delivered requests of a live model",
          "[store]") {
  SqliteHarness harness;
  ModelRow model = TestModel("m");
  model.closed_seq = model.gradient_from_seq = model.log_from_seq = 20'000;
  CommitAsLeader(harness.store(), {PutSession{TestSession("s1")}, PutModel{model}});
  Connection connection(harness.options().database.string(), SQLite::OPEN_READWRITE);
  connection.Execute(kInsertDone);
  for (const std::string& sql : NeededRowsStatements(SqlDialect::kSqlite)) {
    std::vector<int64_t> values;
    if (absl::StrContains(sql, "?1")) values.push_back(1);
    INFO(sql);
    CHECK(StepsOf(connection.database().getHandle(), sql, values) < kMaxSteps);
  }
}

TEST_CASE("SqliteStore: a piece of a purge does not look at all that is due", "[store]") {
  constexpr int64_t kRows = 10;
  SqliteHarness harness;
  Connection connection(harness.options().database.string(), SQLite::OPEN_READWRITE);
  connection.Execute(kInsertDone);
  for (const std::string& sql : PurgeStatements()) {
    std::vector<int64_t> values;
    if (absl::StrContains(sql, "usage")) {
      values = {20'000, kRows};
    } else if (absl::StrContains(sql, "OFFSET ?2")) {
      values = {20'000, kRows - 1};
    } else if (absl::StrContains(sql, "OFFSET ?4")) {
      values = {10'000, 10'000, 20'000, kRows - 1};  // behind rows that stay
    } else if (absl::StrContains(sql, "?4")) {
      values = {10'000, 10'000, 10'000 + kRows, 10'000 + kRows};
    } else {
      values = {kRows, kRows};
    }
    INFO(sql);
    CHECK(StepsOf(connection.database().getHandle(), sql, values) < kMaxSteps);
  }
}

TEST_CASE("SqliteStore: purges and searches find their rows by index, in its order", "[store]") {
  SqliteHarness harness;
  Connection connection(harness.options().database.string(), SQLite::OPEN_READONLY);
  std::vector<std::string> statements = PurgeStatements();
  for (std::string& sql : SessionSearchStatements()) statements.push_back(std::move(sql));
  for (const std::string& sql : statements) {
    const std::string text = PlanOf(connection, sql);
    INFO(sql << "\n" << text);
    CHECK_THAT(text, Catch::Contains("SEARCH") && !Catch::Contains("SCAN") &&
                         !Catch::Contains("TEMP B-TREE"));
    // Not the index of all requests that are done.
    if (absl::StrContains(sql, "has_result = 1")) CHECK_THAT(text, Catch::Contains("results_by_"));
  }
}

TEST_CASE("SqliteStore: a newer schema that needs newer engines is refused naming both",
          "[store]") {
  SqliteHarness harness;
  {
    Connection connection(harness.options().database.string(), SQLite::OPEN_READWRITE);
    connection.Execute("UPDATE schema_version SET version = 99, min_protocol = 98");
  }
  const auto opened = SqliteStore::Open(harness.options());
  CHECK(opened.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(opened.status().message()),
             Catch::Contains("schema version 99, which needs protocol 98") &&
                 Catch::Contains(absl::StrCat("knows version ", OwnSchema().version())));
}

TEST_CASE("SqliteStore: after a rollback a release uses the schema of the next one", "[store]") {
  SqliteHarness harness;
  const LaterSchemas later;
  SqliteStore::Options next = harness.options();
  next.database = harness.dir() / "rollback.db";
  SqliteStore::Options own = next;
  next.schema = later.Next();
  std::vector<std::string> expected;
  // Upgrade, rollback, upgrade again. Each release reads what the others have written.
  for (const SqliteStore::Options* options : {&own, &next, &own, &next}) {
    auto store = SqliteStore::Open(*options);
    INFO(store.status());
    REQUIRE(store.ok());
    expected.push_back(absl::StrCat("s", expected.size()));
    CommitAsLeader(**store, {PutSession{TestSession(expected.back())}});
    for (const std::string& id : expected) CHECK((*store)->FindSession("t1", id)->has_value());
  }
  Connection connection(own.database.string(), SQLite::OPEN_READONLY);
  CHECK(ReadInt(connection, "SELECT version FROM schema_version") == OwnSchema().version() + 1);
  CHECK(ReadInt(connection, "SELECT min_protocol FROM schema_version") == 0);
}

TEST_CASE("SqliteStore: after a contract step the release before the last is refused", "[store]") {
  SqliteHarness harness;
  const LaterSchemas later;
  SqliteStore::Options options = harness.options();
  options.database = harness.dir() / "contract.db";
  REQUIRE(SqliteStore::Open(options).ok());
  options.schema = later.AfterNext();
  REQUIRE(SqliteStore::Open(options).ok());
  options.schema = OwnSchema();
  CHECK(SqliteStore::Open(options).status().code() == absl::StatusCode::kFailedPrecondition);
  options.schema = later.Next();
  CHECK(SqliteStore::Open(options).ok());
}

TEST_CASE("SqliteStore: a file that is no database is an error, not a crash", "[store]") {
  SqliteHarness harness;
  const std::filesystem::path path = harness.dir() / "garbage.db";
  FILE* file = fopen(path.c_str(), "w");
  fputs(std::string(4096, 'g').c_str(), file);
  fclose(file);
  const auto opened = SqliteStore::Open({.database = path, .bodies_dir = harness.dir() / "bodies"});
  CHECK(opened.status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("SqliteStore: commits of a killed process are there", "[store]") {
  SqliteHarness harness;
  std::array<int, 2> pipe_fds{};
  REQUIRE(pipe(pipe_fds.data()) == 0);
  const SqliteStore::Options options{.database = harness.dir() / "killed.db",
                                     .bodies_dir = harness.dir() / "killed_bodies"};
  const pid_t child = fork();
  if (child == 0) CommitForEver(options, pipe_fds[1]);
  close(pipe_fds[1]);
  int reported = 0;
  char byte = 0;
  while (reported < 50 && read(pipe_fds[0], &byte, 1) == 1) ++reported;
  kill(child, SIGKILL);
  while (read(pipe_fds[0], &byte, 1) == 1) ++reported;
  close(pipe_fds[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WTERMSIG(status) == SIGKILL);

  REQUIRE(reported >= 50);
  auto store = SqliteStore::Open(options);
  INFO(store.status());
  REQUIRE(store.ok());
  CHECK((*store)->ListSessions("t1", 1, 0)->total_count >= reported);
  CHECK((*store)->FindSession("t1", "s" + std::to_string(reported - 1))->has_value());
  Connection connection(options.database.string(), SQLite::OPEN_READONLY);
  Query check = connection.Prepare("PRAGMA integrity_check");
  check.Next();
  CHECK(check.Text() == "ok");
}

TEST_CASE("SqliteStore: rows of an older schema get their modules", "[store]") {
  TempDir dir;
  const SqliteStore::Options options{.database = dir.path() / "lathe.db",
                                     .bodies_dir = dir.path() / "bodies"};
  {
    // Version 5, with a row each as that version wrote it.
    SQLite::Database raw(options.database.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    for (const Migration& step : Migrations().first(5)) raw.exec(step.sqlite);
    raw.exec(
        "CREATE TABLE schema_version (id INTEGER PRIMARY KEY, version INTEGER NOT NULL);"
        "INSERT INTO schema_version VALUES (1, 5);"
        "INSERT INTO models VALUES ('m', 's1', 't1', 0, 'tiny', 8, 12.5, -1, 1, 0, 1, '', 1, '', 0,"
        " 0, 0, 0, '', '', 1, 1);"
        "INSERT INTO checkpoints VALUES ('tinker://m/weights/a', 'm', 't1', 0, 'a', 'c1', 1, "
        "'tiny',"
        " 8, 12.5, 1, 1, 1, 1, 0, 0, '', 0, '', 1, 0);"
        "INSERT INTO base_models VALUES ('tiny', '', '', '', 0, 0, 0, 0)");
  }
  auto store = SqliteStore::Open(options);
  REQUIRE(store.ok());
  const auto state = (*store)->TakeLeadership();
  REQUIRE(state.ok());
  CHECK(state->models[0].lora.target_modules == LoraModulesOf(true, false, true));
  CHECK(state->checkpoints[0].lora.target_modules == LoraModulesOf(true, true, true));
  CHECK(state->base_models[0].lora_modules == DenseLoraModules());
}

TEST_CASE("SqliteStore: the audit log refuses to be changed", "[store]") {
  TempDir dir;
  const std::filesystem::path database = dir.path() / "lathe.db";
  {
    auto store = SqliteStore::Open({.database = database, .bodies_dir = dir.path() / "bodies"});
    REQUIRE((*store)->AppendAudit(TestAudit(1)).ok());
    REQUIRE((*store)->AppendAudit(TestAudit(2)).ok());
    const AuditPiece piece{.before = 2, .after_id = 0, .through_id = 1, .num_entries = 1};
    REQUIRE((*store)->PruneAudit(piece, TestAudit(3)).ok());
  }
  SQLite::Database raw(database.string(), SQLite::OPEN_READWRITE);
  CHECK_THROWS_WITH(raw.exec("DELETE FROM audit"), Catch::Contains("append-only"));
  CHECK_THROWS_WITH(raw.exec("UPDATE audit SET outcome = 'no'"), Catch::Contains("append-only"));
}

}  // namespace
}  // namespace lathe::engine
