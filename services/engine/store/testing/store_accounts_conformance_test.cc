// Promises of every store about projects, search of sessions, storage and usage.
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

std::string Ids(const absl::StatusOr<SessionPage>& page) {
  REQUIRE(page.ok());
  std::string ids;
  for (const SessionRow& row : page->rows) ids += row.session_id;
  return ids;
}

UsageRow Usage(int64_t hour, const std::string& session, int64_t tokens,
               const std::string& tenant = "t1") {
  UsageRow row;
  row.tenant_id = tenant;
  row.hour = hour;
  row.session_id = session;
  row.base_model = "tiny";
  row.forward_tokens = tokens;
  row.forward_backward_tokens = tokens + 1;
  row.prefill_tokens = tokens + 2;
  row.cached_prefill_tokens = tokens + 3;
  row.sampled_tokens = tokens + 4;
  row.num_checkpoints = tokens + 5;
  row.stored_bytes = tokens + 6;
  return row;
}

TEST_CASE("Store: a session's project is its tenant's to set", "[store]") {
  auto harness = MakeStoreHarness();
  CommitAsLeader(harness->store(),
                 {PutSession{TestSession("s1")}, PutSession{TestSession("s2", "t2")},
                  PutModel{TestModel("s1:train:0")}, PutModel{TestModel("s2:train:0", "s2", "t2")},
                  SetSessionProject{"t1", "s1", "p"}, SetSessionProject{"t1", "s2", "p"}});
  harness->Reopen();
  Store& store = harness->store();
  CHECK((*store.FindSession("t1", "s1"))->project_id == "p");
  CHECK((*store.FindSession("t2", "s2"))->project_id.empty());
  const Page<ModelRow> runs = *store.ListModelsOfProject("t1", "p", 10, 0);
  CHECK(runs.total_count == 1);
  REQUIRE(runs.rows.size() == 1);
  CHECK(runs.rows[0].model_id == "s1:train:0");
  CHECK(store.ListModelsOfProject("t1", "other", 10, 0)->total_count == 0);
  CHECK(store.ListModelsOfProject("t2", "p", 10, 0)->total_count == 0);
}

TEST_CASE("Store: sessions are found by what they say, newest first, page by page", "[store]") {
  auto harness = MakeStoreHarness();
  std::vector<Write> writes = {PutSession{TestSession("x", "t2", 9)}};
  for (int i = 1; i <= 4; ++i) {
    // c and d have the same creation time.
    SessionRow row = TestSession(std::string(1, static_cast<char>('`' + i)), "t1", i < 4 ? i : 3);
    row.user_metadata = {{"k", "v"}, {"n", std::to_string(i % 2)}};
    row.display_name = i < 3 ? "Alpha Run" : "beta run";
    row.project_id = i == 1 ? "p" : "";
    if (i > 2) row.state = SessionState::kEnded;
    if (i > 2) row.finish_reason = i == 3 ? "errored" : "expired";
    writes.push_back(PutSession{row});
  }
  CommitAsLeader(harness->store(), writes);
  Store& store = harness->store();
  const auto found = [&](SessionQuery query) {
    query.limit = 10;
    return Ids(store.SearchSessions("t1", query));
  };
  CHECK(found({}) == "dcba");
  CHECK(found({.session_id = "b"}) == "b");
  CHECK(found({.name_words = {"run", "al"}}) == "ba");
  CHECK(found({.session_id = "d", .name_words = {"alpha"}}) == "dba");
  CHECK(found({.project_ids = {"p", "q"}}) == "a");
  CHECK(found({.user_metadata = {{"n", "1"}}}) == "ca");
  CHECK(found({.user_metadata = {{"n", "1"}, {"k", "w"}}}) == "");
  CHECK(found({.statuses = {"active"}, .has_statuses = true}) == "ba");
  CHECK(found({.statuses = {"success", "errored"}, .has_statuses = true}) == "c");
  CHECK(found({.has_statuses = true}) == "");
  CHECK(found({.before_created_at = 3, .before_session_id = "d"}) == "cba");
  CHECK(found({.before_created_at = 3, .before_session_id = "c"}) == "ba");
  CHECK(Ids(store.SearchSessions("t1", {.limit = 2})) == "dc");
  CHECK(Ids(store.SearchSessions("t2", {.session_id = "a", .limit = 2})) == "");
}

TEST_CASE("Store: a search finds the one session among a thousand", "[store]") {
  auto harness = MakeStoreHarness();
  std::vector<Write> writes;
  for (int i = 0; i < 1024; ++i) {
    SessionRow row = TestSession("s" + std::to_string(i), "t1", 1000 + i / 7);
    row.display_name = i == 3 ? "needle" : "hay";
    writes.push_back(PutSession{row});
  }
  CommitAsLeader(harness->store(), writes);
  Store& store = harness->store();
  CHECK(Ids(store.SearchSessions("t1", {.name_words = {"needle"}, .limit = 2})) == "s3");
  CHECK(store.SearchSessions("t1", {.limit = 1000})->rows.size() == 1000);
  CHECK(store.SearchSessions("t1", {.limit = 2000})->rows.size() == 1024);
}

TEST_CASE("Store: a search looks at a bounded number of sessions, and the next page goes on",
          "[store]") {
  constexpr int kCount = 5'000;
  auto harness = MakeStoreHarness();
  std::vector<Write> writes;
  for (int i = 0; i < kCount; ++i) {
    SessionRow row = TestSession("s" + std::to_string(i), "t1", 1000 + i / 7);
    row.display_name = i == 3 ? "A 100% needle" : "hay";
    row.state = i == 4 ? SessionState::kActive : SessionState::kEnded;
    row.project_id = i == 5 ? "p" : "";
    writes.push_back(PutSession{row});
  }
  CommitAsLeader(harness->store(), writes);
  Store& store = harness->store();
  SessionQuery query{.name_words = {"100%"}, .limit = 2};
  const SessionPage first = *store.SearchSessions("t1", query);
  CHECK(first.rows.empty());
  REQUIRE(first.next_created_at > 0);
  query.before_created_at = first.next_created_at;
  query.before_session_id = first.next_session_id;
  const SessionPage second = *store.SearchSessions("t1", query);
  REQUIRE(second.rows.size() == 1);
  CHECK(second.rows[0].session_id == "s3");
  CHECK(second.next_created_at == 0);
  // These look at their index only, however many other sessions there are.
  const auto found = [&](const SessionQuery& indexed) {
    const SessionPage page = *store.SearchSessions("t1", indexed);
    CHECK(page.next_created_at == 0);
    return page.rows.size() == 1 ? page.rows[0].session_id : "";
  };
  CHECK(found({.statuses = {"active"}, .has_statuses = true, .limit = 2}) == "s4");
  CHECK(found({.project_ids = {"p"}, .limit = 2}) == "s5");
  CHECK(found({.session_id = "s6", .limit = 2}) == "s6");
}

TEST_CASE("Store: listings count a bounded number of rows behind a page", "[store]") {
  constexpr int kCount = kMaxCountedRows + 50;
  auto harness = MakeStoreHarness();
  std::vector<Write> writes;
  for (int i = 0; i < kCount; ++i) {
    writes.push_back(PutSession{TestSession("s" + std::to_string(i), "t1", i)});
  }
  CommitAsLeader(harness->store(), writes);
  CHECK(harness->store().ListSessions("t1", 10, 0)->total_count == kMaxCountedRows);
  CHECK(harness->store().ListSessions("t1", 10, 20)->total_count == kMaxCountedRows + 20);
  CHECK(harness->store().ListSessions("t1", 10, 60)->total_count == kCount);
  CHECK(harness->store().ListSessions("t1", 10, kCount)->total_count == kCount);
  CHECK(harness->store().ListSessions("t1", 10, 2 * kCount)->total_count == kCount);
}

TEST_CASE("Store: it names the directories that a new leader needs", "[store]") {
  using Dirs = std::vector<std::string>;
  auto harness = MakeStoreHarness();
  CheckpointRow row = TestCheckpoint("tinker://m/weights/a", "t1", 1);
  CHECK(harness->store().NamedDirs()->empty());
  CommitAsLeader(harness->store(),
                 {PutCheckpoint{row}, PutSession{TestSession("s1")}, PutModel{TestModel("m")},
                  PutSnapshot{{.snapshot_id = "c3", .model_id = "m"}},
                  PutVersion{{.version_id = "v", .model_id = "m", .dir = "c2"}},
                  PutSnapshot{{.snapshot_id = "c4", .model_id = "gone"}},
                  PutVersion{{.version_id = "w", .model_id = "gone", .dir = "c5"}}});
  CHECK(*harness->store().NamedDirs() == Dirs{"c1", "c2", "c3"});
  row.state = CheckpointState::kDeleted;
  ModelRow ended = TestModel("m");
  ended.state = ModelState::kUnloaded;
  SessionRow session = TestSession("s1");
  session.state = SessionState::kEnded;
  CommitAsLeader(harness->store(), {PutCheckpoint{row}, PutModel{ended}, PutSession{session}});
  CHECK(harness->store().NamedDirs()->empty());
}

TEST_CASE("Store: the newest checkpoint of a kind is found among many", "[store]") {
  auto harness = MakeStoreHarness();
  std::vector<Write> writes;
  for (int i = 1; i <= 200; ++i) {
    CheckpointRow row = TestCheckpoint("tinker://m/weights/" + std::to_string(i), "t1", i);
    row.kind = i == 1 ? CheckpointKind::kSampler : CheckpointKind::kTraining;
    if (i == 200) row.expires_at = 5;
    row.model_id = "m";
    writes.push_back(PutCheckpoint{row});
  }
  CommitAsLeader(harness->store(), {PutModel{TestModel("m")}});
  CommitAsLeader(harness->store(), writes);
  // Times of the newest ones.
  const auto newest = [&](const std::string& tenant, int64_t now) {
    std::multiset<int64_t> times;
    const std::vector<std::string> ids = {"absent", "m"};
    const std::vector<CheckpointRow> rows = *harness->store().NewestCheckpoints(tenant, ids, now);
    for (const CheckpointRow& row : rows) {
      CHECK(row.model_id == "m");
      times.insert(row.created_at);
    }
    return times;
  };
  CHECK(newest("t1", 4) == std::multiset<int64_t>{1, 200});
  CHECK(newest("t1", 5) == std::multiset<int64_t>{1, 199});
  CHECK(newest("t2", 4).empty());
}

TEST_CASE("Store: the newest checkpoints of hundreds of models are found", "[store]") {
  auto harness = MakeStoreHarness();
  std::vector<Write> models;
  std::vector<Write> checkpoints;
  std::vector<std::string> ids;
  for (int i = 0; i < 250; ++i) {
    ids.push_back("m" + std::to_string(i));
    models.push_back(PutModel{TestModel(ids.back())});
    for (int age = 0; age < 2; ++age) {
      CheckpointRow row =
          TestCheckpoint("tinker://" + ids.back() + "/weights/" + std::to_string(age), "t1", age);
      row.model_id = ids.back();
      checkpoints.push_back(PutCheckpoint{row});
    }
  }
  CommitAsLeader(harness->store(), models);
  CommitAsLeader(harness->store(), checkpoints);
  std::set<std::string> found;
  const std::vector<CheckpointRow> rows = *harness->store().NewestCheckpoints("t1", ids, 0);
  for (const CheckpointRow& row : rows) {
    CHECK(row.created_at == 1);
    CHECK(found.insert(row.model_id).second);
  }
  CHECK(found == std::set<std::string>(ids.begin(), ids.end()));
  CHECK(harness->store().NewestCheckpoints("t1", {}, 0)->empty());
}

TEST_CASE("Store: sizes of checkpoints are summed by session and by project", "[store]") {
  auto harness = MakeStoreHarness();
  const auto checkpoint = [](const std::string& name, const std::string& model, int64_t bytes) {
    CheckpointRow row = TestCheckpoint("tinker://" + model + "/weights/" + name);
    row.model_id = model;
    row.size_bytes = bytes;
    return row;
  };
  CheckpointRow deleted = checkpoint("c", "s1:train:0", 100);
  deleted.state = CheckpointState::kDeleted;
  CheckpointRow expiring = checkpoint("d", "s1:train:0", 1000);
  expiring.expires_at = 50;
  CommitAsLeader(
      harness->store(),
      {PutSession{TestSession("s1")}, PutSession{TestSession("s2")},
       PutModel{TestModel("s1:train:0")}, PutModel{TestModel("s2:train:0", "s2")},
       SetSessionProject{"t1", "s2", "p"}, PutCheckpoint{checkpoint("a", "s1:train:0", 1)},
       PutCheckpoint{checkpoint("b", "s1:train:0", 10)}, PutCheckpoint{deleted},
       PutCheckpoint{expiring}, PutCheckpoint{checkpoint("e", "s2:train:0", 7)}});
  Store& store = harness->store();
  CHECK(store.StoredUseOfSession("t1", "s1", 50)->stored_bytes == 11);
  CHECK(store.StoredUseOfSession("t1", "s1", 49)->num_checkpoints == 3);
  CHECK(store.StoredUseOfSession("t2", "s1", 50)->num_checkpoints == 0);
  const std::vector<ProjectUse> uses = *store.StoredUseByProject("t1", 50);
  REQUIRE(uses.size() == 2);
  CHECK(uses[0].project_id.empty());
  CHECK(uses[0].use.num_checkpoints == 2);
  CHECK(uses[0].use.stored_bytes == 11);
  CHECK(uses[1].project_id == "p");
  CHECK(uses[1].use.stored_bytes == 7);
  CHECK(store.StoredUseByProject("t2", 50)->empty());
}

TEST_CASE("Store: usage of an hour adds up, and a level stays at its highest", "[store]") {
  auto harness = MakeStoreHarness();
  CommitAsLeader(
      harness->store(),
      {PutSession{TestSession("s1")}, SetSessionProject{"t1", "s1", "p"},
       AddUsage{Usage(10, "s1", 1)}, AddUsage{Usage(10, "s1", 100)}, AddUsage{Usage(20, "s1", 1)},
       AddUsage{Usage(10, "", 1)}, AddUsage{Usage(10, "s1", 1, "t2")}});
  harness->Reopen();
  Store& store = harness->store();
  const std::vector<SessionUsage> hour = *store.ListUsage("t1", 10, 20, 10);
  REQUIRE(hour.size() == 2);
  CHECK(hour[0].row.session_id.empty());
  CHECK(hour[0].project_id.empty());
  CHECK(hour[1].project_id == "p");
  CHECK(hour[1].user_metadata == Metadata{{"k", "v"}});
  const UsageRow& row = hour[1].row;
  CHECK(row.base_model == "tiny");
  CHECK(row.forward_tokens == 101);
  CHECK(row.forward_backward_tokens == 103);
  CHECK(row.prefill_tokens == 105);
  CHECK(row.cached_prefill_tokens == 107);
  CHECK(row.sampled_tokens == 109);
  CHECK(row.num_checkpoints == 111);
  CHECK(row.stored_bytes == 106);
  CHECK(store.ListUsage("t1", 0, 30, 10)->size() == 3);
  CHECK(store.ListUsage("t1", 0, 30, 1)->size() == 1);
  CHECK(store.ListUsage("t1", 0, 30, 10)->back().row.hour == 20);
  PurgeAll(store, store.TakeLeadership()->term, {.usage_before = 20});
  CHECK(store.ListUsage("t1", 0, 30, 10)->size() == 1);
}

}  // namespace
}  // namespace lathe::engine
