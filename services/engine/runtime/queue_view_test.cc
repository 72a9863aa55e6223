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

TEST_CASE("QueueView: the time comes from what was done of late", "[runtime]") {
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

TEST_CASE("QueueView: a gap holds back what is above it", "[runtime]") {
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

}  // namespace
}  // namespace lathe::engine
