// Promises of every store about look-ups and listings: tenants, order, pages, expiry, keys.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

TEST_CASE("Store: a tenant finds its own objects only", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  CommitAsLeader(
      store,
      {PutSession{TestSession("s1")}, PutModel{TestModel("s1:train:0")},
       PutSampler{{.sampling_session_id = "s1:sample:0", .session_id = "s1", .tenant_id = "t1"}},
       PutCheckpoint{TestCheckpoint("tinker://m/weights/a")}});
  CHECK(store.FindSession("t1", "s1")->has_value());
  CHECK(store.FindModel("t1", "s1:train:0")->has_value());
  CHECK(store.FindSampler("t1", "s1:sample:0")->has_value());
  CHECK(store.FindCheckpoint("t1", "tinker://m/weights/a", 0)->has_value());
  CHECK_FALSE(store.FindSession("t2", "s1")->has_value());
  CHECK_FALSE(store.FindModel("t2", "s1:train:0")->has_value());
  CHECK_FALSE(store.FindSampler("t2", "s1:sample:0")->has_value());
  CHECK_FALSE(store.FindCheckpoint("t2", "tinker://m/weights/a", 0)->has_value());
  CHECK(store.ModelIdsOfSession("t2", "s1")->empty());
  CHECK(store.SamplerIdsOfSession("t2", "s1")->empty());
  CHECK(store.ListSessions("t2", 10, 0)->total_count == 0);
  CHECK(store.ListModels("t2", 10, 0)->rows.empty());
  CHECK(store.ListCheckpoints("t2", "", 0, true, 10, 0)->rows.empty());
  CHECK(*store.ModelIdsOfSession("t1", "s1") == std::vector<std::string>{"s1:train:0"});
  CHECK(*store.SamplerIdsOfSession("t1", "s1") == std::vector<std::string>{"s1:sample:0"});
}

TEST_CASE("Store: a request is found by its key, by its tenant only", "[store]") {
  auto harness = MakeStoreHarness();
  const std::string owner = "s1:train:0";
  CommitAsLeader(harness->store(),
                 {InsertRequest{TestRequest("r1", 1)}, InsertRequest{TestRequest("r2", 2)}});
  const auto find = [&](const std::string& tenant, OpClass op_class, int64_t seq) {
    return *harness->store().FindRequestByKey(tenant, owner, op_class, seq);
  };
  const std::optional<RequestRow> row = find("t1", OpClass::kTrain, 2);
  REQUIRE(row.has_value());
  CHECK(row->request_id == "r2");
  CHECK(row->content_hash == "hash");
  CHECK(row->plan == TestRequest("r2", 2).plan);
  CHECK_FALSE(find("t1", OpClass::kTrain, 3).has_value());
  CHECK_FALSE(find("t1", OpClass::kSample, 2).has_value());
  CHECK_FALSE(find("t2", OpClass::kTrain, 2).has_value());
}

TEST_CASE("Store: a request and its result are found by its tenant only", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  const int64_t term = store.TakeLeadership()->term;
  const std::vector<Write> writes = {InsertRequest{TestRequest("r1", 1)},
                                     CompleteRequest{"r1", RequestState::kDone, "x", 5}};
  const std::vector<Blob> blobs = {{"x", "result"}};
  REQUIRE(store.Commit(term, writes, blobs).ok());
  CHECK((*store.FindRequest("t1", "r1"))->state == RequestState::kDone);
  CHECK((*store.ReadResult("t1", "r1"))->bytes == "result");
  CHECK_FALSE(store.FindRequest("t2", "r1")->has_value());
  CHECK_FALSE(store.ReadResult("t2", "r1")->has_value());
  CHECK((*store.ReadAnyResult("r1"))->bytes == "result");
}

TEST_CASE("Store: a public checkpoint is found by everyone and listed by its owner", "[store]") {
  auto harness = MakeStoreHarness();
  CheckpointRow row = TestCheckpoint("tinker://m/weights/a");
  row.is_public = true;
  CommitAsLeader(harness->store(), {PutCheckpoint{row}});
  CHECK(harness->store().FindCheckpoint("t2", row.tinker_path, 0)->has_value());
  CHECK(harness->store().ListCheckpoints("t2", "", 0, true, 10, 0)->total_count == 0);
}

TEST_CASE("Store: deleted and expired checkpoints are absent", "[store]") {
  auto harness = MakeStoreHarness();
  CheckpointRow deleted = TestCheckpoint("tinker://m/weights/a");
  deleted.state = CheckpointState::kDeleted;
  CheckpointRow expiring = TestCheckpoint("tinker://m/weights/b");
  expiring.expires_at = 100;
  CommitAsLeader(harness->store(), {PutCheckpoint{deleted}, PutCheckpoint{expiring}});
  Store& store = harness->store();
  CHECK_FALSE(store.FindCheckpoint("t1", deleted.tinker_path, 0)->has_value());
  CHECK(store.FindCheckpoint("t1", expiring.tinker_path, 99)->has_value());
  CHECK_FALSE(store.FindCheckpoint("t1", expiring.tinker_path, 100)->has_value());
  CHECK(store.ListCheckpoints("t1", "", 99, true, 10, 0)->total_count == 1);
  CHECK(store.ListCheckpoints("t1", "", 100, true, 10, 0)->total_count == 0);
}

TEST_CASE("Store: pages are newest first and count everything", "[store]") {
  auto harness = MakeStoreHarness();
  std::vector<Write> writes;
  for (int i = 0; i < 5; ++i) {
    const std::string id = "s" + std::to_string(i);
    writes.push_back(PutSession{TestSession(id, "t1", /*created_at=*/i)});
    writes.push_back(PutModel{TestModel(id + ":train:0", id, "t1", i)});
    writes.push_back(PutCheckpoint{TestCheckpoint("tinker://m/weights/" + id, "t1", i)});
  }
  CommitAsLeader(harness->store(), writes);
  const Page<SessionRow> sessions = *harness->store().ListSessions("t1", 2, 1);
  CHECK(sessions.total_count == 5);
  REQUIRE(sessions.rows.size() == 2);
  CHECK(sessions.rows[0].session_id == "s3");
  CHECK(sessions.rows[1].session_id == "s2");
  const Page<ModelRow> models = *harness->store().ListModels("t1", 10, 4);
  REQUIRE(models.rows.size() == 1);
  CHECK(models.rows[0].model_id == "s0:train:0");
  const Page<CheckpointRow> of_model =
      *harness->store().ListCheckpoints("t1", "s1:train:0", 0, true, 1, 0);
  CHECK(of_model.total_count == 5);
  REQUIRE(of_model.rows.size() == 1);
  CHECK(of_model.rows[0].tinker_path == "tinker://m/weights/s4");
  CHECK(harness->store().ListCheckpoints("t1", "other", 0, true, 10, 0)->total_count == 0);
}

TEST_CASE("Store: keys and tenants survive a restart", "[store]") {
  auto harness = MakeStoreHarness();
  REQUIRE(harness->store().PutTenant({.tenant_id = "t1", .name = "default", .created_at = 3}).ok());
  ApiKeyRow key{.key_id = "k1",
                .tenant_id = "t1",
                .name = "first",
                .secret_sha256 = "ab",
                .scopes = {"train", "read"},
                .created_at = 4,
                .expires_at = 5,
                .revoked_at = 0};
  REQUIRE(harness->store().PutKeys({&key, 1}, TestAudit(4)).ok());
  key.revoked_at = 6;
  REQUIRE(harness->store().PutKeys({&key, 1}, TestAudit(6)).ok());
  harness->Reopen();
  const std::vector<TenantRow> tenants = *harness->store().ListTenants();
  REQUIRE(tenants.size() == 1);
  CHECK(tenants[0].name == "default");
  const std::vector<ApiKeyRow> keys = *harness->store().ListKeys();
  REQUIRE(keys.size() == 1);
  CHECK(keys[0].scopes == std::vector<std::string>{"train", "read"});
  CHECK(keys[0].revoked_at == 6);
  CHECK(keys[0].expires_at == 5);
  CHECK(harness->store().ListAudit("t1", "", 0, 10, 10)->size() == 2);
}

TEST_CASE("Store: the audit log keeps entries by tenant, resource and time", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  REQUIRE(store.AppendAudit(TestAudit(1, "t1", "checkpoints")).ok());
  REQUIRE(store.AppendAudit(TestAudit(2, "t2", "checkpoints")).ok());
  const int64_t term = store.TakeLeadership()->term;
  const Write write = AppendAudit{TestAudit(3, "t1", "organizations")};
  REQUIRE(store.Commit(term, {&write, 1}, {}).ok());
  REQUIRE(store.AppendAudit(TestAudit(4, "t1", "checkpoints")).ok());
  harness->Reopen();
  const auto events = [&](const std::string& resource, int64_t from, int64_t until, int64_t limit) {
    std::string text;
    const auto rows = harness->store().ListAudit("t1", resource, from, until, limit);
    REQUIRE(rows.ok());
    for (const AuditRow& row : *rows) text += row.event;
    return text;
  };
  CHECK(events("", 0, 10, 10) == "e1e3e4");
  CHECK(events("checkpoints", 0, 10, 10) == "e1e4");
  CHECK(events("", 3, 4, 10) == "e3");
  CHECK(events("", 0, 10, 2) == "e3e4");
  CHECK(harness->store().ListAudit("t1", "", 1, 2, 10)->front().details == Metadata{{"a", "b"}});
}

TEST_CASE("Store: entries of the audit log are deleted only as they were exported", "[store]") {
  auto harness = MakeStoreHarness();
  Store& store = harness->store();
  for (int64_t at = 1; at <= 5; ++at) {
    REQUIRE(store.AppendAudit(TestAudit(at, at % 2 == 0 ? "t2" : "t1")).ok());
  }
  const auto exported = [&](int64_t before, int64_t after_id, int64_t limit) {
    const auto page = harness->store().ExportAudit(before, after_id, limit);
    REQUIRE(page.ok());
    return page->entries;
  };
  const std::vector<NumberedAudit> first = exported(5, 0, 3);
  REQUIRE(first.size() == 3);
  CHECK(first[1].row.event == "e2");
  CHECK(first[1].row.tenant_id == "t2");
  CHECK(first[1].row.details == Metadata{{"a", "b"}});
  const std::vector<NumberedAudit> rest = exported(5, first[2].id, 3);
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].row.event == "e4");
  // A page may be empty although entries follow.
  const auto new_ones = store.ExportAudit(5, rest[0].id, 3);
  CHECK(new_ones->entries.empty());
  REQUIRE(new_ones->last_id.has_value());
  CHECK_FALSE(store.ExportAudit(5, *new_ones->last_id, 3)->last_id.has_value());

  AuditPiece piece{.before = 5, .after_id = 0, .through_id = first[2].id, .num_entries = 2};
  const AuditRow record = TestAudit(9, "");
  CHECK(absl::IsFailedPrecondition(store.PruneAudit(piece, record)));
  CHECK(exported(10, 0, 10).size() == 5);
  piece.num_entries = 3;
  REQUIRE(store.PruneAudit(piece, record).ok());
  harness->Reopen();
  const std::vector<NumberedAudit> left = exported(10, 0, 10);
  REQUIRE(left.size() == 3);
  CHECK(left[0].row.event == "e4");
  CHECK(left[2].row.event == "e9");
  CHECK(absl::IsFailedPrecondition(harness->store().PruneAudit(piece, record)));
}

}  // namespace
}  // namespace lathe::engine
