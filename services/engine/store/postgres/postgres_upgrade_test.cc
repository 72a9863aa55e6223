// Two releases on one Postgres database: who migrates, what the other still does, and the way back.
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/postgres/postgres_store.h"
#include "services/engine/store/testing/later_schemas.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

struct UpgradeFixture {
  TestDatabase database;
  LaterSchemas later;
  PostgresConnection observer = database.Connect();

  std::unique_ptr<PostgresStore> Open(const Schema& schema) const {
    auto store = PostgresStore::Open({.url = database.url(), .schema = schema});
    INFO(store.status());
    REQUIRE(store.ok());
    return *std::move(store);
  }
  absl::Status OpenStatus(const Schema& schema) const {
    return PostgresStore::Open({.url = database.url(), .schema = schema}).status();
  }
  int64_t Int(const std::string& sql) {
    Query query = observer.Prepare(sql);
    query.Next();
    return query.Int();
  }
  int64_t Version() { return Int("SELECT version FROM schema_version"); }
  // Waits until `sql` gives more than 0.
  void Await(const std::string& sql) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (Int(sql) == 0) {
      REQUIRE(absl::Now() < deadline);
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
};

absl::Status CommitOne(Store& store, int64_t term, const std::string& id) {
  const Write write = PutSession{TestSession(id)};
  return store.Commit(term, {&write, 1}, {});
}

// Ids of sessions that the store finds, of "s1" to "s9".
std::string Found(Store& store) {
  std::string found;
  for (int i = 1; i < 10; ++i) {
    const std::string id = absl::StrCat("s", i);
    if (store.FindSession("t1", id)->has_value()) absl::StrAppend(&found, id, " ");
  }
  return found;
}

TEST_CASE("PostgresStore: a standby of the next release changes nothing until it leads",
          "[store]") {
  UpgradeFixture f;
  const auto leader = f.Open(OwnSchema());
  const int64_t term = leader->TakeLeadership()->term;
  const auto standby = f.Open(f.later.Next());
  CHECK(standby->ReadLease()->term == term);
  CHECK(f.Version() == OwnSchema().version());
  CHECK(CommitOne(*leader, term, "s1").ok());

  const int64_t next_term = standby->TakeLeadership()->term;
  CHECK(f.Version() == OwnSchema().version() + 1);
  CHECK(CommitOne(*leader, term, "s2").code() == absl::StatusCode::kFailedPrecondition);
  CHECK(CommitOne(*standby, next_term, "s3").ok());
  CHECK(Found(*standby) == "s1 s3 ");
}

TEST_CASE("PostgresStore: after a rollback a release leads on the schema of the next one",
          "[store]") {
  UpgradeFixture f;
  f.Open(OwnSchema());
  {
    const auto next = f.Open(f.later.Next());
    CHECK(CommitOne(*next, next->TakeLeadership()->term, "s1").ok());
  }
  const auto own = f.Open(OwnSchema());
  CHECK(CommitOne(*own, own->TakeLeadership()->term, "s2").ok());
  CHECK(f.Version() == OwnSchema().version() + 1);
  const auto again = f.Open(f.later.Next());
  CHECK(CommitOne(*again, again->TakeLeadership()->term, "s3").ok());
  CHECK(Found(*again) == "s1 s2 s3 ");
  CHECK(f.Int("SELECT count(*) FROM sessions WHERE color = ''") == 3);
}

TEST_CASE("PostgresStore: a contract step refuses older engines, also one that stands by already",
          "[store]") {
  UpgradeFixture f;
  const auto own = f.Open(OwnSchema());
  REQUIRE(f.Open(f.later.AfterNext())->TakeLeadership().ok());
  CHECK(f.OpenStatus(OwnSchema()).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.OpenStatus(f.later.Next()).ok());
  const absl::StatusOr<int64_t> term = own->TakeLease(*own->ReadLease(), {});
  REQUIRE(term.ok());
  CHECK(own->Migrate(*term).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("PostgresStore: only the leader of the newest term migrates", "[store]") {
  UpgradeFixture f;
  f.Open(OwnSchema());
  const auto next = f.Open(f.later.Next());
  const absl::StatusOr<int64_t> term = next->TakeLease(*next->ReadLease(), {});
  REQUIRE(term.ok());
  REQUIRE(f.Open(OwnSchema())->TakeLeadership().ok());
  CHECK(next->Migrate(*term).code() == absl::StatusCode::kAborted);
  CHECK(f.Version() == OwnSchema().version());
}

TEST_CASE("PostgresStore: a migration lets other clients pass while a long transaction is open",
          "[store]") {
  UpgradeFixture f;
  f.Open(OwnSchema());
  PostgresConnection reader = f.database.Connect();
  reader.Execute("SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT 1 FROM sessions");
  const auto next = f.Open(f.later.Next());
  std::future<absl::Status> migrated = std::async(std::launch::async, [&] {
    const absl::StatusOr<StoredState> state = next->TakeLeadership();
    return state.status();
  });
  const auto await_step = [&] {
    f.Await(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
        "'ALTER TABLE sessions ADD COLUMN color%'");
  };
  // Each statement of another client first queues behind the step and then overtakes it.
  for (int i = 0; i < 2; ++i) {
    await_step();
    PostgresConnection other({.url = f.database.url(), .lock_timeout = absl::ZeroDuration()});
    Query query = other.Prepare("SELECT count(*) FROM sessions");
    CHECK(query.Next());
    CHECK(f.Version() == OwnSchema().version());
  }
  reader.Execute("COMMIT");
  const absl::Status status = migrated.get();
  INFO(status);
  CHECK(status.ok());
  CHECK(f.Version() == OwnSchema().version() + 1);
}

// The schema of this release and an online step.
class OnlineSchema {
 public:
  Schema Get() const { return {.migrations = migrations_, .protocol = OwnSchema().protocol + 1}; }

 private:
  static constexpr char kStep[] =
      "-- Of two.\n"
      "CREATE INDEX sessions_one ON sessions (state);\n"
      "CREATE INDEX sessions_two ON sessions (created_at) WHERE state = 0;\n";

  static std::vector<Migration> With(std::vector<Migration> migrations, Migration last) {
    migrations.push_back(last);
    return migrations;
  }

  const std::vector<Migration> migrations_ =
      With({Migrations().begin(), Migrations().end()}, {.postgres = kStep, .is_online = true});
};

constexpr char kValidIndexes[] =
    "SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid IN"
    " (to_regclass('sessions_one'), to_regclass('sessions_two'))";

TEST_CASE("PostgresStore: a leader makes the indexes of an online step beside its commits",
          "[store]") {
  UpgradeFixture f;
  const OnlineSchema online;
  f.Open(OwnSchema());
  const auto leader = f.Open(online.Get());
  const int64_t term = leader->TakeLeadership()->term;
  CHECK(f.Version() == OwnSchema().version() + 1);
  CHECK(f.Int(kValidIndexes) == 0);
  PostgresConnection other = f.database.Connect();
  other.Execute(
      "SET idle_in_transaction_session_timeout = 0; BEGIN; UPDATE sessions SET state = 0");
  std::future<absl::Status> made =
      std::async(std::launch::async, [&] { return leader->MakeIndexes(); });
  f.Await(
      "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
      "'CREATE INDEX CONCURRENTLY sessions_one%'");
  // An index that is made in one transaction would let no row be written before `other` ends.
  for (int i = 1; i < 4; ++i) CHECK(CommitOne(*leader, term, absl::StrCat("s", i)).ok());
  CHECK(Found(*leader) == "s1 s2 s3 ");
  CHECK(f.Int(kValidIndexes) == 0);
  const auto standby = f.Open(online.Get());
  CHECK(standby->MakeIndexes().code() == absl::StatusCode::kUnavailable);
  other.Execute("COMMIT");
  const absl::Status status = made.get();
  INFO(status);
  CHECK(status.ok());
  CHECK(f.Int(kValidIndexes) == 2);
  CHECK(standby->MakeIndexes().ok());
}

TEST_CASE("PostgresStore: an index that was left half made is made again", "[store]") {
  UpgradeFixture f;
  const OnlineSchema online;
  f.Open(OwnSchema());
  const auto leader = f.Open(online.Get());
  REQUIRE(leader->TakeLeadership().ok());
  REQUIRE(leader->MakeIndexes().ok());
  f.observer.Execute(
      "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass('sessions_two')");
  REQUIRE(f.Int(kValidIndexes) == 1);
  CHECK(leader->MakeIndexes().ok());
  CHECK(f.Int(kValidIndexes) == 2);
}

TEST_CASE("PostgresStore: an empty database has the indexes of online steps at once", "[store]") {
  UpgradeFixture f;
  const OnlineSchema online;
  f.Open(online.Get());
  CHECK(f.Int(kValidIndexes) == 2);
}

TEST_CASE("PostgresStore: a leader that stops while it waits to migrate leaves the schema",
          "[store]") {
  UpgradeFixture f;
  f.Open(OwnSchema());
  PostgresConnection reader = f.database.Connect();
  reader.Execute("SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT 1 FROM sessions");
  const auto next = f.Open(f.later.Next());
  const absl::StatusOr<int64_t> term = next->TakeLease(*next->ReadLease(), {});
  std::future<absl::Status> migrated =
      std::async(std::launch::async, [&] { return next->Migrate(*term); });
  f.Await("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
  next->GiveUp();
  CHECK(migrated.get().code() == absl::StatusCode::kUnavailable);
  CHECK(f.Version() == OwnSchema().version());
}

}  // namespace
}  // namespace lathe::engine
