#include "services/engine/runtime/request_lookup.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/core/state/plan.h"
#include "services/engine/store/sqlite/sqlite_store.h"
#include "services/engine/store/testing/store_rows.h"
#include "services/engine/store/testing/temp_dir.h"

namespace lathe::engine {
namespace {

struct RequestLookupFixture {
  TempDir dir;
  std::unique_ptr<SqliteStore> store = *SqliteStore::Open(
      {.database = dir.path() / "lathe.db", .bodies_dir = dir.path() / "bodies"});
  int64_t term = store->TakeLeadership()->term;

  void Keep(const RequestRow& row) {
    const std::vector<Write> writes = {InsertRequest{row}};
    REQUIRE(store->Commit(term, writes, {}).ok());
  }
  static Submit Duplicate(int64_t seq, const std::string& content_hash = "hash") {
    Submit submit;
    submit.tenant_id = "t1";
    submit.owner_id = "s1:train:0";
    submit.seq_id = seq;
    submit.content_hash = content_hash;
    return submit;
  }
  // Returns the caller's answer when the core answers `from_core`.
  Answer Ask(const Submit& submit, const Answer& from_core) {
    Answer given;
    RequestLookup lookup(*store);
    lookup.Resolve(submit, [&](const Answer& answer) { given = answer; })(from_core);
    lookup.Stop();
    return given;
  }
  Answer AskClosed(const Submit& submit) {
    Answer closed;
    closed.error = ClosedSeq(submit.owner_id, submit.seq_id);
    return Ask(submit, closed);
  }
};

TEST_CASE("RequestLookup: a repetition gets the id that the request had", "[runtime]") {
  RequestLookupFixture f;
  f.Keep(TestRequest("r1", 1));
  const Answer answer = f.AskClosed(RequestLookupFixture::Duplicate(1));
  CHECK_FALSE(answer.error);
  CHECK(answer.id == "r1");
}

TEST_CASE("RequestLookup: another request under a used seq is refused", "[runtime]") {
  RequestLookupFixture f;
  f.Keep(TestRequest("r1", 1));
  CHECK(f.AskClosed(RequestLookupFixture::Duplicate(1, "other")).error->code == "seq_id_reused");
  Submit step = RequestLookupFixture::Duplicate(1);
  step.kind = OperationKind::kOptimStep;
  CHECK(f.AskClosed(step).error->code == "seq_id_reused");
}

TEST_CASE("RequestLookup: a request that was refused at submission stays refused", "[runtime]") {
  RequestLookupFixture f;
  RequestRow row = TestRequest("r1", 1);
  Plan plan;
  plan.refused = true;
  row.plan = EncodePlan(plan);
  f.Keep(row);
  CHECK(f.AskClosed(RequestLookupFixture::Duplicate(1)).error->code == "seq_id_refused");
}

TEST_CASE("RequestLookup: a seq that never came is abandoned, and a foreign one too", "[runtime]") {
  RequestLookupFixture f;
  f.Keep(TestRequest("r1", 1));
  CHECK(f.AskClosed(RequestLookupFixture::Duplicate(2)).error->code == "seq_id_abandoned");
  Submit foreign = RequestLookupFixture::Duplicate(1);
  foreign.tenant_id = "t2";
  CHECK(f.AskClosed(foreign).error->code == "seq_id_abandoned");
}

TEST_CASE("RequestLookup: an answer of the core is passed on unchanged unless the seq is closed",
          "[runtime]") {
  RequestLookupFixture f;
  f.Keep(TestRequest("r1", 1));
  Answer known;
  known.id = "r9";
  CHECK(f.Ask(RequestLookupFixture::Duplicate(1), known).id == "r9");
  Answer draining;
  draining.error = ErrorInfo{.status = absl::StatusCode::kUnavailable,
                             .code = "draining",
                             .field = "",
                             .message = "draining"};
  CHECK(f.Ask(RequestLookupFixture::Duplicate(1), draining).error->code == "draining");
}

}  // namespace
}  // namespace lathe::engine
