// Ended sessions, locks, conflicts and a lack of connections, each at a moment that the test
// chooses.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/postgres/postgres_store.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

// Disturbs the server, in a session that waits for no replica.
class Saboteur {
 public:
  explicit Saboteur(const TestDatabase& database) : connection_(database.Connect()) {
    connection_.Execute(
        "SET synchronous_commit = local; SET statement_timeout = 0;"
        "SET idle_in_transaction_session_timeout = 0");
  }

  void Run(const std::string& sql) { connection_.Execute(sql); }

  int64_t Int(const std::string& sql) {
    Query query = connection_.Prepare(sql);
    query.Next();
    return query.Int();
  }

  // Waits until `sql` gives more than 0.
  void Await(const std::string& sql) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (Int(sql) == 0) {
      REQUIRE(absl::Now() < deadline);
      absl::SleepFor(absl::Milliseconds(2));
    }
  }

  // Makes commits wait for the replicas `names`; no name: for none.
  void AwaitReplicas(const std::string& names) {
    Run(absl::StrCat("ALTER SYSTEM SET synchronous_standby_names = '", names, "'"));
    Run("SELECT pg_reload_conf()");
    Await(absl::StrCat(
        "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '",
        names, "'"));
    // Commits follow the checkpointer's copy of the setting, which it reads before a checkpoint.
    Run("CHECKPOINT");
  }

  // Waits for a session to wait for `event`, runs `before`, then ends the session.
  void EndSessionThatWaitsFor(const std::string& event, const std::string& before = "") {
    const std::string waiting = absl::StrCat(
        " FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND wait_event = '", event, "'");
    Await(absl::StrCat("SELECT count(*)", waiting));
    if (!before.empty()) Run(before);
    Int(absl::StrCat("SELECT count(pg_terminate_backend(pid))", waiting));
  }

  // Installs a trigger: a session that writes an audit entry for `object` sleeps at that write or
  // at its commit. It does so while the table `pauses` has a row.
  void PauseAt(const std::string& object, bool at_commit) {
    Run(
        absl::StrCat("CREATE TABLE pauses (); INSERT INTO pauses DEFAULT VALUES;"
                     "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                     "  IF NEW.object = '",
                     object,
                     "' AND EXISTS (SELECT FROM pauses) THEN PERFORM pg_sleep(8); END IF;"
                     "  RETURN NEW; END $$;"
                     "CREATE ",
                     at_commit ? "CONSTRAINT TRIGGER pause AFTER INSERT ON audit INITIALLY DEFERRED"
                               : "TRIGGER pause BEFORE INSERT ON audit",
                     " FOR EACH ROW EXECUTE FUNCTION pause()"));
  }
  void AwaitPause() { Await("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"); }
  // Ends the session that sleeps. Later sessions do not sleep.
  void EndPause() { EndSessionThatWaitsFor("PgSleep", "DELETE FROM pauses"); }

 private:
  PostgresConnection connection_;
};

constexpr char kWaitsForSessions[] =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
    "'INSERT INTO sessions%'";
constexpr char kAuditRows[] = "SELECT count(*) FROM audit";
constexpr char kAuditObjects[] = "SELECT count(DISTINCT object) FROM audit";

Write Audit(const std::string& object) {
  AuditRow row = TestAudit(1);
  row.object = object;
  return AppendAudit{row};
}

// Finds the session. Calls may be refused at first: the pool refuses them for as long as a call
// took whose connection was lost.
bool AwaitSession(Store& store, const std::string& id) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!store.FindSession("t1", id).ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const auto found = store.FindSession("t1", id);
  return found.ok() && found->has_value();
}

struct Fixture {
  PostgresHarness harness;
  Store& store = harness.store();
  Saboteur saboteur{harness.database()};
  int64_t term = store.TakeLeadership()->term;

  std::future<absl::Status> StartCommit(std::vector<Write> writes) {
    return std::async(std::launch::async, [this, writes = std::move(writes)] {
      return store.Commit(term, writes, {});
    });
  }
};

TEST_CASE("PostgresStore: a commit whose outcome was lost is found done, not done again",
          "[store]") {
  Fixture f;
  // A commit is then on the disk, but waits for a replica that does not exist.
  f.saboteur.AwaitReplicas("nobody");
  std::future<absl::Status> commit = f.StartCommit({Audit("a"), Audit("b")});
  f.saboteur.EndSessionThatWaitsFor("SyncRep");
  const absl::Status status = commit.get();
  f.saboteur.AwaitReplicas("");
  INFO(status);
  CHECK(status.ok());
  CHECK(f.saboteur.Int(kAuditRows) == 2);
  const Write next = Audit("c");
  CHECK(f.store.Commit(f.term, {&next, 1}, {}).ok());
  CHECK(f.saboteur.Int(kAuditRows) == 3);
}

TEST_CASE("PostgresStore: a commit whose session ended during COMMIT is done again", "[store]") {
  Fixture f;
  f.saboteur.PauseAt("b", /*at_commit=*/true);
  std::future<absl::Status> commit = f.StartCommit({Audit("a"), Audit("b")});
  f.saboteur.EndPause();
  CHECK(commit.get().ok());
  CHECK(f.saboteur.Int(kAuditRows) == 2);
}

TEST_CASE("PostgresStore: a session that ends between two writes leaves each write done once",
          "[store]") {
  const int at = GENERATE(0, 1, 2, 3);
  Fixture f;
  std::vector<Write> writes;
  for (int i = 0; i < 4; ++i) writes.push_back(Audit(absl::StrCat(i)));
  f.saboteur.PauseAt(absl::StrCat(at), /*at_commit=*/false);
  std::future<absl::Status> commit = f.StartCommit(writes);
  f.saboteur.EndPause();
  CHECK(commit.get().ok());
  CHECK(f.saboteur.Int(kAuditRows) == 4);
  CHECK(f.saboteur.Int(kAuditObjects) == 4);
}

TEST_CASE("PostgresStore: a leader that was replaced during its COMMIT learns it", "[store]") {
  Fixture f;
  auto other = PostgresStore::Open({.url = f.harness.database().url()});
  REQUIRE(other.ok());
  f.saboteur.PauseAt("a", /*at_commit=*/true);
  std::future<absl::Status> commit = f.StartCommit({Audit("a")});
  f.saboteur.AwaitPause();
  std::future<int64_t> next_term =
      std::async(std::launch::async, [&] { return (*other)->TakeLeadership()->term; });
  // The takeover waits for the row that the commit holds.
  f.saboteur.Await(
      "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
      "'UPDATE leader SET term%'");
  f.saboteur.EndPause();
  CHECK(next_term.get() == f.term + 1);
  // The order of the two events after the session's end decides whether the commit is retried.
  const absl::Status status = commit.get();
  INFO(status);
  CHECK((status.ok() || status.code() == absl::StatusCode::kFailedPrecondition));
  CHECK(f.saboteur.Int(kAuditRows) == (status.ok() ? 1 : 0));
}

TEST_CASE("PostgresStore: reads go on after all sessions were ended", "[store]") {
  Fixture f;
  const Write write = PutSession{TestSession("s1")};
  REQUIRE(f.store.Commit(f.term, {&write, 1}, {}).ok());
  REQUIRE(f.store.FindSession("t1", "s1").ok());
  f.saboteur.Int(
      "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
      " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
  CHECK(f.store.FindSession("t1", "s1").ok());
  CHECK(f.store.Secret("a").ok());
  const Write next = PutSession{TestSession("s2")};
  CHECK(f.store.Commit(f.term, {&next, 1}, {}).ok());
}

TEST_CASE("PostgresStore: a lock delays a commit and fails a read, and both recover", "[store]") {
  Fixture f;
  f.saboteur.Run("BEGIN");
  f.saboteur.Run("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE");
  std::future<absl::Status> commit = f.StartCommit({PutSession{TestSession("s1")}});
  CHECK(f.store.FindSession("t1", "s1").status().code() == absl::StatusCode::kUnavailable);
  // The read took the whole lock_timeout: the commit has failed once and is trying again.
  CHECK(commit.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  // Other calls are not refused because of it.
  CHECK(f.store.FindModel("t1", "m1").ok());
  f.saboteur.Run("ROLLBACK");
  CHECK(commit.get().ok());
  CHECK(AwaitSession(f.store, "s1"));
}

TEST_CASE("PostgresStore: a store that has given up waits for nothing and keeps nothing more",
          "[store]") {
  Fixture f;
  // Uses a second session, because a transaction sees only one state of pg_stat_activity.
  Saboteur locker(f.harness.database());
  locker.Run("BEGIN");
  locker.Run("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE");
  std::future<absl::Status> commit = f.StartCommit({PutSession{TestSession("s1")}});
  f.saboteur.Await(kWaitsForSessions);
  f.store.GiveUp();
  CHECK(commit.get().code() == absl::StatusCode::kUnavailable);
  CHECK(f.store.FindSession("t1", "s1").status().code() == absl::StatusCode::kUnavailable);
  locker.Run("ROLLBACK");
  f.harness.Reopen();
  CHECK_FALSE(f.harness.store().FindSession("t1", "s1")->has_value());
}

TEST_CASE("PostgresStore: a lease is renewed while a commit waits for a lock", "[store]") {
  Fixture f;
  // Uses a second session, because a transaction sees only one state of pg_stat_activity.
  Saboteur locker(f.harness.database());
  locker.Run("BEGIN");
  locker.Run("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE");
  std::future<absl::Status> commit = f.StartCommit({PutSession{TestSession("s1")}});
  f.saboteur.Await(kWaitsForSessions);
  CHECK(f.store.RenewLease(f.term).ok());
  locker.Run("ROLLBACK");
  CHECK(commit.get().ok());
}

TEST_CASE("PostgresStore: a conflict is tried again, a few times", "[store]") {
  const std::string code = GENERATE("40001", "40P01");
  const auto [num_conflicts, expected] = GENERATE(table<int, absl::StatusCode>(
      {{3, absl::StatusCode::kOk}, {1000, absl::StatusCode::kAborted}}));
  Fixture f;
  // A sequence keeps its count when the transaction is rolled back.
  f.saboteur.Run(absl::StrCat(
      "CREATE SEQUENCE attempts;"
      "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
      "  IF nextval('attempts') <= ",
      num_conflicts, " THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '", code,
      "'; END IF; RETURN NEW; END $$;"
      "CREATE TRIGGER conflict BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION conflict()"));
  const Write write = Audit("a");
  CHECK(f.store.Commit(f.term, {&write, 1}, {}).code() == expected);
  CHECK(f.saboteur.Int(kAuditRows) == (expected == absl::StatusCode::kOk ? 1 : 0));
}

TEST_CASE("PostgresPool: a statement whose time is over is refused alone, a lost server is not",
          "[store]") {
  TestDatabase database;
  PostgresPool pool({.url = database.url(), .statement_timeout = absl::Milliseconds(500)},
                    /*max_connections=*/2, /*slow=*/absl::ZeroDuration());
  const auto run = [](PostgresPool& on, const char* sql) {
    return on.Run(absl::Seconds(60), [sql](PostgresConnection& connection) {
      connection.Execute(sql);
      return absl::OkStatus();
    });
  };
  CHECK(absl::IsUnavailable(run(pool, "SELECT pg_sleep(60)")));
  CHECK(run(pool, "SELECT 1").ok());
  // The refusals last as long as the call that lost its connection.
  PostgresPool patient({.url = database.url()}, /*max_connections=*/2, absl::ZeroDuration());
  CHECK(absl::IsUnavailable(run(patient,
                                "SELECT pg_sleep(1);"
                                "SELECT pg_terminate_backend(pg_backend_pid())")));
  CHECK_THAT(std::string(run(patient, "SELECT 1").message()), Catch::Contains("did not answer"));
}

TEST_CASE("PostgresPool: a call to a server that hangs ends with its time", "[store]") {
  TestDatabase database;
  ConnectionWatch watch;
  PostgresPool pool({.url = database.url(), .watch = &watch}, /*max_connections=*/1);
  int64_t pid = 0;
  const absl::Status hung = pool.Run(absl::Seconds(1), [&pid](PostgresConnection& connection) {
    pid = connection.SessionPid();
    kill(static_cast<pid_t>(pid), SIGSTOP);
    connection.Execute("SELECT 1");
    return absl::OkStatus();
  });
  if (pid > 0) kill(static_cast<pid_t>(pid), SIGCONT);
  CHECK(absl::IsUnavailable(hung));
  CHECK_THAT(std::string(hung.message()), Catch::Contains("no answer from the server"));
}

TEST_CASE("PostgresPool: once given up, no call waits for the server", "[store]") {
  TestDatabase database;
  ConnectionWatch watch;
  watch.GiveUp();
  PostgresPool pool({.url = database.url(), .watch = &watch}, /*max_connections=*/1);
  const absl::Status waited = pool.Run(absl::Seconds(60), [](PostgresConnection& connection) {
    connection.Execute("SELECT pg_sleep(9)");
    return absl::OkStatus();
  });
  CHECK(absl::IsUnavailable(waited));
  CHECK_THAT(std::string(waited.message()), Catch::Contains("the engine stops"));
}

TEST_CASE("PostgresStore: without a free connection reads are refused until there is one",
          "[store]") {
  Fixture f;
  const std::string role = absl::StrCat("limited_", getpid());
  // One connection is for the lease, one for commits.
  f.saboteur.Run(
      absl::StrCat("CREATE ROLE ", role, " LOGIN CONNECTION LIMIT 2;",
                   "GRANT pg_read_all_data, pg_write_all_data TO ", role, ";",
                   "DO $$ BEGIN EXECUTE 'GRANT ALL ON SCHEMA ' || current_schema() || ' TO ", role,
                   "'; END $$"));
  auto limited =
      PostgresStore::Open({.url = absl::StrCat(f.harness.database().url(), "&user=", role)});
  INFO(limited.status());
  REQUIRE(limited.ok());
  const int64_t term = (*limited)->TakeLeadership()->term;
  const Write write = PutSession{TestSession("s1")};
  REQUIRE((*limited)->Commit(term, {&write, 1}, {}).ok());
  CHECK((*limited)->FindSession("t1", "s1").status().code() == absl::StatusCode::kUnavailable);
  f.saboteur.Run(absl::StrCat("ALTER ROLE ", role, " CONNECTION LIMIT 4"));
  CHECK(AwaitSession(**limited, "s1"));
  CHECK((*limited)->Commit(term, {&write, 1}, {}).ok());
  limited->reset();
  f.saboteur.Run(absl::StrCat("DROP OWNED BY ", role, "; DROP ROLE ", role));
}

TEST_CASE("PostgresStore: of three engines one migrates, also when one dies on the way",
          "[store]") {
  const bool one_dies = GENERATE(false, true);
  TestDatabase database;
  Saboteur saboteur(database);
  Saboteur locker(database);
  if (one_dies) {
    // The state at the first start, so that the migration can be stopped in its middle.
    saboteur.Run(
        "CREATE TABLE schema_version (id BIGINT PRIMARY KEY, version BIGINT NOT NULL);"
        "INSERT INTO schema_version VALUES (1, 0)");
    locker.Run("BEGIN");
    locker.Run("SELECT version FROM schema_version FOR UPDATE");
  }
  std::vector<std::future<absl::Status>> opened;
  for (int i = 0; i < 3; ++i) {
    opened.push_back(std::async(
        std::launch::async, [&] { return PostgresStore::Open({.url = database.url()}).status(); }));
  }
  if (one_dies) {
    saboteur.EndSessionThatWaitsFor("transactionid");
    locker.Run("ROLLBACK");
  }
  for (std::future<absl::Status>& one : opened) {
    const absl::Status status = one.get();
    INFO(status);
    CHECK(status.ok());
  }
  CHECK(saboteur.Int("SELECT version FROM schema_version") == OwnSchema().version());
  CHECK(saboteur.Int("SELECT count(*) FROM leader") == 1);
}

}  // namespace
}  // namespace lathe::engine
