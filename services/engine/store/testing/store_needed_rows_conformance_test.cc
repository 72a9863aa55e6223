// The rows that a new leader reads are those of plain conditions, whatever the rows are.
#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/engine/store/sql/needed_rows.h"
#include "services/engine/store/testing/store_harness.h"
#include "services/engine/store/testing/store_rows.h"

namespace lathe::engine {
namespace {

constexpr int64_t kHour = int64_t{3600} * 1000000000;
constexpr int kNumSessions = 6;
constexpr int kNumModels = 12;
constexpr int kNumSamplers = 8;
constexpr int kNumSeqs = 12;

// The needed requests as one condition, and the bodies that must stay. Both look at every row.
constexpr char kPlainRequests[] =
    "WITH live AS (SELECT session_id FROM sessions WHERE state < 2 UNION "
    "SELECT session_id FROM models WHERE state IN (0, 1))"
    " SELECT request_id FROM requests WHERE state < 3"
    " OR (has_result = 1 AND done_at > 0 AND delivered_at = 0 AND result_bytes > 0)"
    " OR owner_id IN (SELECT session_id FROM live)"
    " OR (owner_id IN (SELECT model_id FROM models JOIN live USING (session_id) UNION ALL"
    "   SELECT sampling_session_id FROM samplers JOIN live USING (session_id))"
    "  AND (kind = 8 OR (state = 4 AND done_at > ?1 AND result_bytes >= 0)"
    "   OR ((op_class <> 1 OR delivered_at = 0) AND EXISTS"
    "    (SELECT 1 FROM results WHERE results.request_id = requests.request_id))"
    "   OR (op_class = 1 AND EXISTS (SELECT 1 FROM models WHERE model_id = requests.owner_id"
    "    AND (seq_id > closed_seq OR seq_id > gradient_from_seq OR seq_id > log_from_seq)))))"
    " ORDER BY accepted_at, rowid";
constexpr char kPlainBodies[] =
    "SELECT body_id FROM requests WHERE body_id <> '' AND (state < 3 OR (state = 3 AND kind = 4"
    " AND EXISTS (SELECT 1 FROM models WHERE model_id = requests.owner_id"
    " AND requests.seq_id > models.log_from_seq AND models.state < 2)))";

constexpr char kInsertRequests[] =
    "INSERT INTO requests (request_id, tenant_id, owner_id, op_class, seq_id, kind, state,"
    " content_hash, body_id, body_bytes, tokens, plan, epoch, accepted_at, done_at, delivered_at,"
    " has_result, result_bytes) VALUES ";
constexpr char kInsertResults[] = "INSERT INTO results (request_id, bytes) VALUES ";
constexpr char kInsertPayloads[] = "INSERT INTO payloads (body_id, bytes) VALUES ";

std::vector<std::string> Texts(SqlConnection& connection, const char* sql, int64_t day_ago) {
  Query query = connection.Prepare(sql);
  if (day_ago > 0) query.Bind(day_ago);
  std::vector<std::string> texts;
  while (query.Next()) texts.push_back(query.Text());
  return texts;
}

class RandomRows {
 public:
  RandomRows(int64_t now, uint64_t seed) : now_(now), random_(seed) {}

  std::vector<Write> Owners() {
    std::vector<Write> writes;
    for (int i = 0; i < kNumSessions; ++i) {
      SessionRow row = TestSession(absl::StrCat("s", i));
      row.state = static_cast<SessionState>(Pick(3));
      writes.push_back(PutSession{row});
    }
    for (int i = 0; i < kNumModels; ++i) {
      ModelRow row = TestModel(absl::StrCat("m", i), absl::StrCat("s", Pick(kNumSessions + 1)));
      row.state = static_cast<ModelState>(Pick(5));
      for (int64_t* seq : {&row.closed_seq, &row.gradient_from_seq, &row.log_from_seq}) {
        *seq = Pick(kNumSeqs + 1);
      }
      writes.push_back(PutModel{row});
    }
    for (int i = 0; i < kNumSamplers; ++i) {
      SamplerRow row;
      row.sampling_session_id = absl::StrCat("p", i);
      row.session_id = absl::StrCat("s", Pick(kNumSessions + 1));
      writes.push_back(PutSampler{row});
    }
    return writes;
  }

  void InsertRequests(SqlConnection& connection) {
    for (int i = 0; i <= kNumModels; ++i) {
      for (int seq = 0; seq < kNumSeqs; ++seq) {
        AddOne(absl::StrCat("m", i), OpClass::kTrain, seq, TrainKind());
      }
      AddOne(absl::StrCat("m", i), OpClass::kUnload, 0, OperationKind::kUnloadModel);
    }
    for (int i = 0; i <= kNumSamplers; ++i) {
      for (int seq = 0; seq < kNumSeqs; ++seq) {
        AddOne(absl::StrCat("p", i), OpClass::kSample, seq, OperationKind::kSample);
      }
    }
    for (int i = 0; i <= kNumSessions; ++i) {
      for (int seq = 0; seq < 4; ++seq) {
        AddOne(absl::StrCat("s", i), OpClass::kModel, seq,
               Pick(2) ? OperationKind::kCreateModel : OperationKind::kLoadWeights);
      }
    }
    for (int i = 0; i < 5; ++i) AddBody(absl::StrCat("orphan", i));
    Insert(connection, kInsertRequests, requests_);
    Insert(connection, kInsertResults, results_);
    Insert(connection, kInsertPayloads, payloads_);
  }

 private:
  int64_t Pick(int64_t count) { return static_cast<int64_t>(random_() % count); }

  OperationKind TrainKind() {
    constexpr std::array<OperationKind, 4> kKinds = {
        OperationKind::kForward, OperationKind::kForwardBackward, OperationKind::kOptimStep,
        OperationKind::kLoadWeights};
    return kKinds[Pick(kKinds.size())];
  }

  void AddOne(const std::string& owner, OpClass op_class, int64_t seq, OperationKind kind) {
    const std::string id = absl::StrCat("r", requests_.size());
    const int64_t state = Pick(4) == 0 ? 1 + Pick(2) : 3 + Pick(2);
    const bool is_done = state >= 3;
    const bool has_result = is_done && Pick(2) == 0;
    // An engine of an earlier release writes no size.
    const int64_t bytes = has_result ? 5 * Pick(2) : -Pick(2);
    const std::string body = Pick(2) == 0 ? absl::StrCat("b", id) : "";
    const int64_t done_at = is_done ? now_ - (1 + 46 * Pick(2)) * kHour : 0;
    const int64_t delivered_at = is_done && Pick(2) == 0 ? done_at : 0;
    requests_.push_back(absl::StrFormat(
        "('%s', 't1', '%s', %d, %d, %d, %d, '', '%s', 0, 0, '', 0, %d, %d, %d, %d, %d)", id, owner,
        static_cast<int>(op_class), seq, static_cast<int>(kind), state, body,
        /*accepted_at=*/Pick(20), done_at, delivered_at, has_result ? 1 : 0, bytes));
    if (has_result) results_.push_back(absl::StrFormat("('%s', '')", id));
    if (!body.empty()) AddBody(body);
  }

  void AddBody(const std::string& id) { payloads_.push_back(absl::StrFormat("('%s', '')", id)); }

  static void Insert(SqlConnection& connection, const char* into,
                     const std::vector<std::string>& rows) {
    connection.Prepare(absl::StrCat(into, absl::StrJoin(rows, ", "))).Run();
  }

  const int64_t now_;
  std::mt19937_64 random_;
  std::vector<std::string> requests_;
  std::vector<std::string> results_;
  std::vector<std::string> payloads_;
};

TEST_CASE("Store: a new leader gets the requests and bodies that the plain conditions select",
          "[store]") {
  const uint64_t seed = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  INFO("seed " << seed);
  auto harness = MakeStoreHarness();
  const std::unique_ptr<SqlConnection> connection = harness->Connect();
  const int64_t now = absl::GetCurrentTimeNanos();
  RandomRows rows(now, seed);
  CommitAsLeader(harness->store(), rows.Owners());
  rows.InsertRequests(*connection);
  const std::vector<std::string> needed = Texts(*connection, kPlainRequests, now - 24 * kHour);
  std::set<std::string> bodies;
  for (std::string& id : Texts(*connection, kPlainBodies, 0)) bodies.insert(std::move(id));
  REQUIRE(needed.size() > 20);
  REQUIRE(bodies.size() > 5);

  harness->Reopen();
  const absl::StatusOr<StoredState> state = harness->store().TakeLeadership();
  REQUIRE(state.ok());
  std::vector<std::string> found;
  for (const RequestRow& row : state->requests) found.push_back(row.request_id);
  CHECK(found == needed);
  found.clear();
  for (const RequestRow& row : ReadNeededRequests(*connection, now, /*has_indexes=*/false)) {
    found.push_back(row.request_id);
  }
  CHECK(found == needed);
  std::set<std::string> left;
  for (std::string& id : Texts(*connection, "SELECT body_id FROM payloads", 0)) {
    left.insert(std::move(id));
  }
  CHECK(left == bodies);
}

}  // namespace
}  // namespace lathe::engine
