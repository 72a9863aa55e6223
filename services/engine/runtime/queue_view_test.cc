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
    view.SetGroup(id, "g");
  }
  // Advances the clock by a second, so that the view is computed anew.
  QueuePlace Place(const std::string& id) { return *view.PlaceOf(id, now += kSecond); }
  void Run(const std::string& id, int64_t seconds) {
    view.OnDispatched(id, "g", now);
    now += seconds * kSecond;
    view.OnExecuted(id, now);
    view.OnCompleted(id, now);
  }

  QueueView view;
  int64_t now = 1000 * kSecond;
};

TEST_CASE("QueueView: earlier requests of the same model are before it", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 100);
  f.Accept("b", "t", "m", 2, 200);
  f.Accept("c", "t", "m", 3, 300);
  CHECK(f.Place("a").requests_before == 0);
  CHECK(f.Place("c").requests_before == 2);
  CHECK(f.Place("c").tokens_before == 300);
  f.view.OnDispatched("a", "g", f.now);
  CHECK(f.Place("a").is_running);
  CHECK(f.Place("c").requests_before == 1);
  f.view.OnCompleted("a", f.now);
  CHECK_FALSE(f.view.PlaceOf("a", f.now));
  CHECK_FALSE(f.view.PlaceOf("unknown", f.now));
}

TEST_CASE("QueueView: another tenant's flood is before it only for its share", "[runtime]") {
  QueueViewFixture f;
  for (int i = 0; i < 100; ++i) {
    f.Accept("flood" + std::to_string(i), "flooder", "m1", i + 1, 1000);
  }
  f.Accept("a", "t", "m2", 1, 2000);
  const QueuePlace place = f.Place("a");
  CHECK(place.requests_before == 2);
  CHECK(place.tokens_before == 2000);
  // The flooder's last request waits for the single request of the other tenant.
  CHECK(f.Place("flood99").requests_before == 100);
}

TEST_CASE("QueueView: models of one tenant take turns", "[runtime]") {
  QueueViewFixture f;
  for (int i = 0; i < 10; ++i) f.Accept("x" + std::to_string(i), "t", "m1", i + 1, 10);
  f.Accept("a", "t", "m2", 1, 10);
  CHECK(f.Place("a").requests_before == 1);
}

TEST_CASE("QueueView: other groups and samples are other queues", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m1", 1, 10);
  f.Accept("s", "t", "sampler", 1, 10, OperationKind::kSample, OpClass::kSample);
  f.Accept("b", "t", "m2", 1, 10);
  f.view.SetGroup("b", "other");
  for (const char* id : {"a", "s", "b"}) CHECK(f.Place(id).requests_before == 0);
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

TEST_CASE("QueueView: the time is estimated from recent work", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 1000);
  f.Accept("b", "t", "m", 2, 5000);
  CHECK(f.Place("b").seconds == 0);
  for (int i = 0; i < 3; ++i) {
    f.Accept("r" + std::to_string(i), "t", "other", i + 1, 1000);
    f.Run("r" + std::to_string(i), 2);
  }
  CHECK(f.Place("b").seconds == Approx(12));  // 6000 tokens at 500 a second
  f.view.OnDispatched("a", "g", f.now);
  CHECK(f.Place("a").seconds == Approx(1));
  CHECK(f.Place("b").seconds == Approx(12));
}

TEST_CASE("QueueView: a gap holds back the requests above it", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 2, 10);
  f.Accept("c", "t", "m", 4, 10);
  f.view.SetModelState({.model_id = "m", .missing_seq = 3, .gap_closes_at = f.now + 61 * kSecond});
  CHECK(f.Place("a").missing_seq == 0);
  CHECK(f.Place("c").missing_seq == 3);
  CHECK(f.Place("c").gap_closes_in == 58 * kSecond);
  f.view.SetModelState({.model_id = "m", .is_away = true});
  CHECK(f.Place("c").is_model_away);
  f.view.SetModelState({.model_id = "m"});
  CHECK_FALSE(f.Place("c").is_model_away);
}

TEST_CASE("QueueView: all are looked at once a second", "[runtime]") {
  QueueViewFixture f;
  f.Accept("a", "t", "m", 1, 10);
  f.Accept("b", "t", "m", 2, 10);
  CHECK(f.Place("b").requests_before == 1);
  f.view.OnCompleted("a", f.now);
  CHECK(f.view.PlaceOf("b", f.now + kSecond / 2)->requests_before == 1);
  CHECK(f.view.PlaceOf("b", f.now + kSecond)->requests_before == 0);
}

TEST_CASE("DescribeQueue: a request gets its reason to wait, its place and a time", "[runtime]") {
  struct Case {
    QueuePlace place;
    std::string words;
  };
  const auto [place, words] = GENERATE(table<QueuePlace, std::string>({
      {QueuePlace{}, "waiting for its turn"},
      {QueuePlace{.is_running = true}, "at a worker"},
      {QueuePlace{.is_running = true, .seconds = 2.4}, "at a worker; about 2 s"},
      {QueuePlace{.requests_before = 1}, "waiting for its turn; 1 request is before it"},
      {QueuePlace{.requests_before = 3, .tokens_before = 5120, .seconds = 4.2},
       "waiting for its turn; 3 requests with 5120 tokens are before it; about 4 s"},
      {QueuePlace{.missing_seq = 7, .gap_closes_in = 210'500'000'000, .seconds = 4},
       "waiting for seq 7, which has not arrived; continues without it in 211 s"},
      {QueuePlace{.after_kind = OperationKind::kOptimStep, .after_seq = 12, .requests_before = 2},
       "waiting for optim_step seq 12 of its model; 2 requests are before it"},
  }));
  const QueueStatus status = DescribeQueue({}, place);
  CHECK(status.reason == words);
  CHECK_FALSE(status.paused);
}

TEST_CASE("DescribeQueue: without a worker the reason comes first, and no time is given",
          "[runtime]") {
  const QueueStatus status = DescribeQueue({.paused = true, .reason = "tiny is loading"},
                                           QueuePlace{.requests_before = 2, .seconds = 9});
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
}

TEST_CASE("DescribeQueue: an unknown request gets the reason of its group only", "[runtime]") {
  CHECK(DescribeQueue({.paused = true, .reason = "gone"}, std::nullopt).reason == "gone");
  CHECK(DescribeQueue({}, std::nullopt).reason.empty());
}

}  // namespace
}  // namespace lathe::engine
