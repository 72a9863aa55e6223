// Promises of the Postgres store alone: fencing between processes, lost connections, locks.
#include "services/engine/store/postgres/postgres_store.h"

#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/engine/store/postgres/migrate.h"
#include "services/engine/store/postgres/postgres_harness.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/sql/purge.h"
#include "services/engine/store/sql/schema.h"
#include "services/engine/store/sql/session_search.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

std::unique_ptr<PostgresStore> Open(const TestDatabase& database) {
  auto store = PostgresStore::Open({.url = database.url()});
  INFO(store.status());
  REQUIRE(store.ok());
  return *std::move(store);
}

absl::Status CommitSession(Store& store, int64_t term, const std::string& id) {
  const Write write = PutSession{TestSession(id)};
  return store.Commit(term, {&write, 1}, {});
}

int64_t ReadInt(const TestDatabase& database, const std::string& sql) {
  PostgresConnection connection = database.Connect();
  Query query = connection.Prepare(sql);
  query.Next();
  return query.Int();
}

TEST_CASE("PostgresStore: of two leaders only the newer one commits", "[store]") {
  TestDatabase database;
  auto older = Open(database);
  auto newer = Open(database);
  const int64_t old_term = older->TakeLeadership()->term;
  REQUIRE(CommitSession(*older, old_term, "s1").ok());
  const int64_t new_term = newer->TakeLeadership()->term;
  CHECK(CommitSession(*older, old_term, "s2").code() == absl::StatusCode::kFailedPrecondition);
  CHECK(older->AppendAudit(TestAudit(1)).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(CommitSession(*newer, new_term, "s3").ok());
  CHECK(ReadInt(database, "SELECT count(*) FROM sessions") == 2);
  CHECK(ReadInt(database, "SELECT count(*) FROM audit") == 0);
}

TEST_CASE("PostgresStore: leaders that race have different terms, and no commit of one is lost",
          "[store]") {
  TestDatabase database;
  constexpr int kStores = 4;
  constexpr int kRounds = 10;
  std::array<std::vector<std::string>, kStores> committed;
  std::array<std::vector<int64_t>, kStores> terms;
  std::vector<std::unique_ptr<PostgresStore>> stores;
  for (int i = 0; i < kStores; ++i) stores.push_back(Open(database));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kStores; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < kRounds; ++round) {
          const int64_t term = stores[i]->TakeLeadership()->term;
          terms[i].push_back(term);
          for (int n = 0; n < 3; ++n) {
            const std::string id = absl::StrCat("s", i, "_", round, "_", n);
            if (CommitSession(*stores[i], term, id).ok()) committed[i].push_back(id);
          }
        }
      });
    }
  }
  std::set<int64_t> all_terms;
  size_t num_committed = 0;
  for (int i = 0; i < kStores; ++i) {
    all_terms.insert(terms[i].begin(), terms[i].end());
    num_committed += committed[i].size();
    for (const std::string& id : committed[i]) CHECK(stores[i]->FindSession("t1", id)->has_value());
  }
  CHECK(all_terms.size() == kStores * kRounds);
  CHECK(ReadInt(database, "SELECT count(*) FROM sessions") == static_cast<int64_t>(num_committed));
}

TEST_CASE("PostgresStore: a newer schema that needs newer engines is refused naming both",
          "[store]") {
  TestDatabase database;
  Open(database);
  database.Connect().Execute("UPDATE schema_version SET version = 99, min_protocol = 98");
  const auto opened = PostgresStore::Open({.url = database.url()});
  CHECK(opened.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(opened.status().message()),
             Catch::Contains("schema version 99, which needs protocol 98") &&
                 Catch::Contains(absl::StrCat("knows version ", OwnSchema().version())));
}

TEST_CASE("PostgresStore: a server that cannot be reached is unavailable", "[store]") {
  const auto opened = PostgresStore::Open(
      {.url = "postgres:///none?host=/nonexistent", .open_timeout = absl::Milliseconds(50)});
  CHECK(opened.status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("PostgresStore: text with any bytes comes back", "[store]") {
  PostgresHarness harness;
  SessionRow row = TestSession("s1");
  row.user_metadata = {{std::string("n\0l", 3), std::string("\xff\x01", 2)}};
  row.display_name = std::string("\x01odd\0", 5);
  const Write write = PutSession{row};
  REQUIRE(harness.store().Commit(harness.store().TakeLeadership()->term, {&write, 1}, {}).ok());
  const auto found = *harness.store().FindSession("t1", "s1");
  REQUIRE(found.has_value());
  CHECK(found->user_metadata == row.user_metadata);
  CHECK(found->display_name == row.display_name);
}

TEST_CASE("PostgresStore: a commit of thousands of writes is one", "[store]") {
  PostgresHarness harness;
  std::vector<Write> writes;
  for (int i = 0; i < 3000; ++i) writes.push_back(PutSession{TestSession(absl::StrCat("s", i))});
  REQUIRE(harness.store().Commit(harness.store().TakeLeadership()->term, writes, {}).ok());
  CHECK(harness.store().ListSessions("t1", 1, 0)->total_count == 3000);
}

TEST_CASE("PostgresStore: a purge finds what is due by index", "[store]") {
  PostgresHarness harness;
  PostgresConnection connection = harness.database().Connect();
  connection.Execute(
      "INSERT INTO requests (request_id, tenant_id, owner_id, op_class, seq_id, kind, state,"
      " content_hash, body_id, body_bytes, tokens, plan, epoch, accepted_at, done_at, delivered_at,"
      " has_result) SELECT 'r' || i, 't', 'm', 1, i, 4, 3, '', '', 0, 0, '', 0, i, 1000000 + i,"
      " 1000000 + i, 1 FROM generate_series(1, 20000) AS i;"
      "INSERT INTO results (request_id, bytes) SELECT request_id, '' FROM requests;"
      "ANALYZE requests; ANALYZE results");
  for (const std::string& sql : PurgeStatements()) {
    // The bounds are those of a purge with nothing due.
    Query plan = connection.Prepare(absl::StrCat(
        "EXPLAIN ",
        absl::StrReplaceAll(
            sql, {{"?1", "100"}, {"?2", "99"}, {"?3", "98"}, {"?4", "99"}, {"?5", "98"}})));
    std::string text;
    while (plan.Next()) absl::StrAppend(&text, plan.Text(), "\n");
    INFO(sql << "\n" << text);
    CHECK_THAT(text,
               !Catch::Contains("Seq Scan on requests") && !Catch::Contains("Seq Scan on results"));
    // Not the index of all requests that are done.
    if (absl::StrContains(sql, "has_result = 1")) CHECK_THAT(text, Catch::Contains("results_by_"));
  }
}

TEST_CASE("PostgresStore: a new leader finds requests by index", "[store]") {
  PostgresHarness harness;
  PostgresConnection connection = harness.database().Connect();
  connection.Execute(
      "INSERT INTO sessions (session_id, tenant_id, ordering, state, finish_reason, finish_detail,"
      " sdk_version, display_name, project_id, tags, user_metadata, created_at, heartbeat_at)"
      " SELECT 's' || i, 't', 1, 0, '', '', '', '', '', '', '', i, 0 FROM generate_series(1, 50)"
      " AS i;"
      "INSERT INTO models (model_id, session_id, tenant_id, model_seq_id, base_model, lora_rank,"
      " lora_alpha, lora_seed, train_attn, train_mlp, train_unembed, group_name, state,"
      " state_reason, applied_seq, closed_seq, saved_seq, gradient_from_seq, kept_window,"
      " user_metadata, created_at, last_request_at, log_from_seq)"
      " SELECT 'm' || i, 's' || i, 't', 0, '', 8, 8, 0, 1, 1, 1, '', 1, '', 400, 400, 0, 400, '',"
      " '', i, 0, 400 FROM generate_series(1, 50) AS i;"
      "INSERT INTO requests (request_id, tenant_id, owner_id, op_class, seq_id, kind, state,"
      " content_hash, body_id, body_bytes, tokens, plan, epoch, accepted_at, done_at, delivered_at,"
      " has_result, result_bytes) SELECT 'r' || i, 't', 'm' || (i % 50 + 1), 1, i / 50, 4, 3, '',"
      " '', 0, 0, '', 0, i, 1000000 + i, 1000000 + i, 1, 9 FROM generate_series(1, 20000) AS i;"
      "INSERT INTO results (request_id, bytes) SELECT request_id, '' FROM requests;"
      "ANALYZE sessions; ANALYZE models; ANALYZE requests; ANALYZE results");
  for (const std::string& sql : NeededRowsStatements(SqlDialect::kPostgres)) {
    Query plan =
        connection.Prepare(absl::StrCat("EXPLAIN ", absl::StrReplaceAll(sql, {{"?1", "100"}})));
    std::string text;
    while (plan.Next()) absl::StrAppend(&text, plan.Text(), "\n");
    INFO(sql << "\n" << text);
    CHECK_THAT(text, Catch::Contains("Index") && !Catch::Contains("Seq Scan on requests"));
    // The key of all requests is searched for an owner, and not read to its end.
    if (absl::StrContains(text, "requests_owner_id_op_class_seq_id_key")) {
      CHECK_THAT(text, Catch::Contains("Index Cond: ((owner_id = "));
    }
  }
}

TEST_CASE("PostgresStore: a search reads the sessions in the order of an index", "[store]") {
  PostgresHarness harness;
  PostgresConnection connection = harness.database().Connect();
  connection.Execute(
      "INSERT INTO sessions (session_id, tenant_id, ordering, state, finish_reason, finish_detail,"
      " sdk_version, display_name, project_id, tags, user_metadata, created_at, heartbeat_at)"
      " SELECT 's' || i, 't', 1, CASE WHEN i % 100 = 0 THEN 0 ELSE 2 END, '', '', '', 'name',"
      " CASE WHEN i % 50 = 0 THEN 'p' ELSE '' END, '', '', i, 0 FROM generate_series(1, 20000) AS"
      " i; ANALYZE sessions");
  for (const std::string& sql : SessionSearchStatements()) {
    Query plan =
        connection.Prepare(absl::StrCat("EXPLAIN ", absl::StrReplaceAll(sql, {{"?1", "'t'"},
                                                                              {"?2", "'p'"},
                                                                              {"?3", "15000"},
                                                                              {"?4", "''"},
                                                                              {"?5", "100"},
                                                                              {"?6", "''"},
                                                                              {"?7", "'%x%'"},
                                                                              {"?8", "'s'"},
                                                                              {"?9", "''"}})));
    std::string text;
    while (plan.Next()) absl::StrAppend(&text, plan.Text(), "\n");
    INFO(sql << "\n" << text);
    CHECK_THAT(text, Catch::Contains("Index") && !Catch::Contains("Seq Scan"));
  }
}

TEST_CASE("PostgresStore: the audit log refuses to be changed", "[store]") {
  PostgresHarness harness;
  REQUIRE(harness.store().AppendAudit(TestAudit(1)).ok());
  REQUIRE(harness.store().AppendAudit(TestAudit(2)).ok());
  const AuditPiece piece{.before = 2, .after_id = 0, .through_id = 1, .num_entries = 1};
  REQUIRE(harness.store().PruneAudit(piece, TestAudit(3)).ok());
  PostgresConnection connection = harness.database().Connect();
  CHECK_THROWS_WITH(connection.Execute("DELETE FROM audit"), Catch::Contains("append-only"));
  CHECK_THROWS_WITH(connection.Execute("UPDATE audit SET outcome = 'no'"),
                    Catch::Contains("append-only"));
}

}  // namespace
}  // namespace lathe::engine
