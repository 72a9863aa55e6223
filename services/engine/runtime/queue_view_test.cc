#include "services/engine/runtime/queue_view.h"

#include <catch2/catch.hpp>

namespace lathe::engine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct QueueViewFixture {
  void Accept(const std::string& id, const std::string& tenant, const std::string& owner,
              int64_t seq, int64_t tokens, OperationKind kind = OperationKind::kForwardBackward,
              OpClass op_class = OpClass::kTrain) {
    RequestRow row;
    row.request_id = id;
    row.tenant_id = tenant;
    row.owner_id = owner;
    row.op_class = op_class;
    row.kind = kind;
    row.seq_id = seq;
    row.tokens = tokens;
    view.OnAccepted(row);
  }
  QueuePlace Place(const std::string& id) { return *view.PlaceOf(id, now); }

  QueueView view;
  const int64_t now = 1000 * kSecond;
};

TEST_CASE("QueueView: earlier requests of the same model are before it", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 100);
  f.Accept("b", "t", "m", 2, 200);
  f.Accept("c", "t", "m", 3, 300);
  CHECK(f.Place("a").requests_before == 0);
  CHECK(f.Place("c").requests_before == 2);
  CHECK(f.Place("c").tokens_before == 300);
  f.view.OnDispatched("a");
  CHECK(f.Place("a").is_running);
  CHECK(f.Place("c").requests_before == 1);
  f.view.OnCompleted("a");
  CHECK_FALSE(f.view.PlaceOf("a", f.now));
  CHECK_FALSE(f.view.PlaceOf("unknown", f.now));
}

TEST_CASE("QueueView: requests of other models and samplers are not before it", "[runtime]") {
  QueueViewFixture f;
  for (int i = 0; i < 10; ++i) f.Accept("x" + std::to_string(i), "t", "m1", i + 1, 10);
  f.Accept("s", "t", "sampler", 1, 10, OperationKind::kSample, OpClass::kSample);
  f.Accept("s2", "t", "sampler", 2, 10, OperationKind::kSample, OpClass::kSample);
  f.Accept("a", "t", "m2", 1, 10);
  CHECK(f.Place("a").requests_before == 0);
  CHECK(f.Place("s").requests_before == 0);
  CHECK(f.Place("s2").requests_before == 1);
  CHECK(f.Place("s2").tokens_before == 0);
}

TEST_CASE("QueueView: counts requests by tenant and operation", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 10);
  f.Accept("b", "t", "m", 2, 10);
  f.Accept("c", "t", "m", 3, 10, OperationKind::kOptimStep);
  f.Accept("d", "u", "n", 1, 10);
  f.view.OnDispatched("a");
  f.view.OnDispatched("a");  // sent again after its worker was lost
  const std::vector<QueueCount> own = f.view.CountsOf("t");
  REQUIRE(own.size() == 2);
  CHECK(own[0].kind == OperationKind::kForwardBackward);
  CHECK(own[0].num_waiting == 1);
  CHECK(own[0].num_running == 1);
  CHECK(own[1].kind == OperationKind::kOptimStep);
  CHECK(own[1].num_waiting == 1);
  const std::vector<QueueCount> all = f.view.CountsOfAll();
  REQUIRE(all.size() == 2);
  CHECK(all[0].num_waiting == 2);
  for (const char* id : {"a", "b", "c", "d", "d"}) f.view.OnCompleted(id);
  CHECK(f.view.CountsOf("t").empty());
  CHECK(f.view.CountsOf("stranger").empty());
  CHECK(f.view.CountsOfAll().empty());
}

TEST_CASE("QueueView: requests that end in any order leave the counts exact", "[runtime]") {
  QueueViewFixture f;
  for (int i = 0; i < 100; ++i) f.Accept(std::to_string(i), "t", "m", i + 1, i);
  for (int i = 0; i < 100; i += 3) f.view.OnCompleted(std::to_string(i));
  for (int i = 1; i < 100; i += 3) f.view.OnDispatched(std::to_string(i));
  int64_t tokens = 0;
  int64_t requests = 0;
  for (int i = 2; i < 100; i += 3) {
    const QueuePlace place = f.Place(std::to_string(i));
    CHECK(place.requests_before == requests++);
    CHECK(place.tokens_before == tokens);
    tokens += i;
  }
}

TEST_CASE("QueueView: a poll visits few of very many requests", "[runtime]") {
  constexpr int64_t kNumRequests = 262144;
  constexpr int64_t kNumOwners = 10000;
  constexpr int64_t kMaxVisited = 2 * 18;  // a red-black tree of 2^18 nodes is at most this deep
  QueueViewFixture f;
  // The first owner has half of the requests, the others share the rest.
  const auto owner_of = [](int64_t i) { return i % 2 == 0 ? 0 : 1 + i / 2 % (kNumOwners - 1); };
  for (int64_t i = 0; i < kNumRequests; ++i) {
    f.Accept(std::to_string(i), "t", std::to_string(owner_of(i)), i, 1, OperationKind::kSample,
             OpClass::kSample);
  }
  for (const int64_t i : {int64_t{0}, int64_t{2}, kNumRequests / 2, kNumRequests - 2}) {
    const int64_t visited = f.view.NumVisitedForTest();
    CHECK(f.Place(std::to_string(i)).requests_before == i / 2);
    CHECK(f.view.NumVisitedForTest() - visited <= kMaxVisited);
  }
}

TEST_CASE("QueueView: it names the operation of the model that must end first", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 10);
  f.Accept("step", "t", "m", 2, 0, OperationKind::kOptimStep);
  f.Accept("b", "t", "m", 3, 10);
  f.Accept("c", "t", "m", 4, 10);
  CHECK(f.Place("a").after_seq == 0);
  CHECK(f.Place("step").after_seq == 1);
  CHECK(f.Place("step").after_kind == OperationKind::kForwardBackward);
  CHECK(f.Place("c").after_seq == 2);
  CHECK(f.Place("c").after_kind == OperationKind::kOptimStep);
}

TEST_CASE("QueueView: a gap holds back the requests above it", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 2, 10);
  f.Accept("c", "t", "m", 4, 10);
  f.view.SetModelState({.model_id = "m", .missing_seq = 3, .gap_closes_at = f.now + 58 * kSecond});
  CHECK(f.Place("a").missing_seq == 0);
  CHECK(f.Place("c").missing_seq == 3);
  CHECK(f.Place("c").gap_closes_in == 58 * kSecond);
  f.view.SetModelState({.model_id = "m", .is_away = true});
  CHECK(f.Place("c").is_model_away);
  f.view.SetModelState({.model_id = "m", .is_away = true, .reason = "no store"});
  CHECK(f.view.ReasonOf("m") == "no store");
  f.view.SetModelState({.model_id = "m"});
  CHECK_FALSE(f.Place("c").is_model_away);
  CHECK(f.view.ReasonOf("m").empty());
}

TEST_CASE("DescribeQueue: a request gets its reason to wait and its place", "[runtime]") {
  struct Case {
    QueuePlace place;
    std::string words;
  };
  const auto [place, words] = GENERATE(table<QueuePlace, std::string>({
      {QueuePlace{}, "waiting for its turn"},
      {QueuePlace{.is_running = true}, "at a worker"},
      {QueuePlace{.requests_before = 1}, "waiting for its turn; 1 request is before it"},
      {QueuePlace{.requests_before = 3, .tokens_before = 5120},
       "waiting for its turn; 3 requests with 5120 tokens are before it"},
      {QueuePlace{.missing_seq = 7, .gap_closes_in = 210'500'000'000},
       "waiting for seq 7, which has not arrived; continues without it in 211 s"},
      {QueuePlace{.after_kind = OperationKind::kOptimStep, .after_seq = 12, .requests_before = 2},
       "waiting for optim_step seq 12 of its model; 2 requests are before it"},
  }));
  const QueueStatus status = DescribeQueue({}, place);
  CHECK(status.reason == words);
  CHECK_FALSE(status.paused);
}

TEST_CASE("DescribeQueue: without a worker the reason comes first", "[runtime]") {
  const QueueStatus status = DescribeQueue({.paused = true, .reason = "tiny is loading"},
                                           QueuePlace{.requests_before = 2});
  CHECK(status.paused);
  CHECK(status.reason == "tiny is loading; 2 requests are before it");
}

TEST_CASE("DescribeQueue: a model in recovery pauses its requests", "[runtime]") {
  const QueueStatus status = DescribeQueue({}, QueuePlace{.is_model_away = true});
  CHECK(status.paused);
  CHECK(status.reason == "its model is being recovered on a worker");
}

TEST_CASE("DescribeQueue: a waiting request gets the reason why its model waits", "[runtime]") {
  const std::string why = "its model is being moved to another group";
  const QueueStatus alone = DescribeQueue({}, QueuePlace{.model_reason = why});
  CHECK(alone.paused);
  CHECK(alone.reason == why);
  const QueueStatus group{.paused = true, .reason = "waiting for a worker of tiny"};
  CHECK(DescribeQueue(group, QueuePlace{.model_reason = why}).reason ==
        "waiting for a worker of tiny; " + why);
  CHECK_FALSE(DescribeQueue({}, QueuePlace{.is_running = true, .model_reason = why}).paused);
  // A worker had the request before its model was lost.
  const QueuePlace away{.is_running = true, .is_model_away = true, .model_reason = why};
  CHECK(DescribeQueue({}, away).reason == why);
}

TEST_CASE("DescribeQueue: an unknown request gets the reason of its group only", "[runtime]") {
  CHECK(DescribeQueue({.paused = true, .reason = "gone"}, std::nullopt).reason == "gone");
  CHECK(DescribeQueue({}, std::nullopt).reason.empty());
}

}  // namespace
}  // namespace lathe::engine
