#include "services/engine/core/quotas.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

struct Limited {
  CoreHarness h;
  std::string session;
  std::string model;

  explicit Limited(QuotaRow quota) {
    h.AttachWorker();
    session = h.NewSession();
    model = h.NewModel(session);
    // Leaves the minute in which the model was created.
    h.Advance(61 * kSecond);
    quota.tenant_id = "t";
    h.Post(SetQuota{++h.last_call, quota, "tenant"});
  }
  CallId Train(int64_t seq, int64_t tokens) {
    return h.Train(model, seq, OperationKind::kForwardBackward, "", "t", tokens);
  }
  const ErrorInfo& Refusal(CallId call) const {
    REQUIRE(h.AnswerTo(call).error.has_value());
    return *h.AnswerTo(call).error;
  }
};

TEST_CASE("Quotas: tokens beyond the rate are refused until the minute has passed", "[core]") {
  Limited t({.tokens_per_minute = 100});
  CHECK_FALSE(t.h.AnswerTo(t.Train(1, 60)).error);
  t.h.Advance(20 * kSecond);
  const ErrorInfo refusal = t.Refusal(t.Train(2, 50));
  CHECK(refusal.status == absl::StatusCode::kResourceExhausted);
  CHECK(refusal.code == "rate_limit");
  CHECK_THAT(refusal.message, Catch::Contains("tokens_per_minute is 100, used in the last minute "
                                              "are 60 and this request has 50"));
  CHECK_THAT(refusal.message, Catch::Contains("come back in 40 s"));
  CHECK(refusal.retry_after_seconds == 40);
  CHECK_FALSE(t.h.AnswerTo(t.Train(2, 40)).error);
  t.h.Advance(40 * kSecond);
  CHECK_FALSE(t.h.AnswerTo(t.Train(3, 50)).error);
}

TEST_CASE("Quotas: a request larger than the whole rate passes in an empty minute", "[core]") {
  Limited t({.tokens_per_minute = 100});
  CHECK_FALSE(t.h.AnswerTo(t.Train(1, 500)).error);
  CHECK(t.Refusal(t.Train(2, 1)).code == "rate_limit");
  t.h.Advance(60 * kSecond);
  CHECK_FALSE(t.h.AnswerTo(t.Train(2, 1)).error);
}

TEST_CASE("Quotas: the requests of a minute are counted, repetitions are not", "[core]") {
  Limited t({.requests_per_minute = 2});
  t.h.Gradient(t.model, 1, "a");
  const CallId again = t.h.Gradient(t.model, 1, "a");
  CHECK_FALSE(t.h.AnswerTo(again).error);
  CHECK_FALSE(t.h.AnswerTo(t.h.Step(t.model, 2)).error);
  CHECK_THAT(t.Refusal(t.h.Gradient(t.model, 3)).message,
             Catch::Contains("requests_per_minute is 2"));
  CHECK_FALSE(t.h.AnswerTo(t.h.Gradient(t.model, 1, "a")).error);
}

TEST_CASE("Quotas: limits and the use of the last minute survive a restart", "[core]") {
  Limited t({.tokens_per_minute = 100});
  t.Train(1, 90);
  t.h.RestartEngine();
  t.h.AttachWorker("p2");
  CHECK(t.Refusal(t.h.Train(t.model, 2, OperationKind::kForwardBackward, "", "t", 20)).code ==
        "rate_limit");
}

TEST_CASE("Quotas: what is queued, stored and live is bounded", "[core]") {
  SECTION("adapters") {
    Limited t({.adapters = 1});
    const ErrorInfo refusal = t.Refusal(t.h.CreateModel(t.session, 1));
    CHECK(refusal.status == absl::StatusCode::kPermissionDenied);
    CHECK(refusal.code == "adapter_quota");
    CHECK_THAT(refusal.message, Catch::Contains("adapters is 1 and 1 models are live"));
    t.h.SubmitArgs(t.model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
    t.h.RunWorker();
    CHECK_FALSE(t.h.AnswerTo(t.h.CreateModel(t.session, 1)).error);
  }
  SECTION("storage") {
    Limited t({.stored_bytes = 100});
    t.h.Save(t.model, 1, {.name = "a"});
    t.h.RunWorker();
    const ErrorInfo refusal = t.Refusal(t.h.Save(t.model, 2, {.name = "b"}));
    CHECK(refusal.status == absl::StatusCode::kPermissionDenied);
    CHECK_THAT(refusal.message, Catch::Contains("stored_bytes is 100 and checkpoints hold 100"));
    // The refusal consumed its seq_id, so later requests do not wait for it.
    t.h.Step(t.model, 3);
    t.h.RunWorker();
    t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", "tinker://" + t.model + "/weights/a"});
    CHECK_FALSE(t.h.AnswerTo(t.h.Save(t.model, 4, {.name = "b"})).error);
  }
}

TEST_CASE("Quotas: a tenant's limits are its own, and 0 lifts them", "[core]") {
  Limited t({.requests_per_minute = 1});
  t.h.Gradient(t.model, 1);
  CHECK(t.Refusal(t.h.Gradient(t.model, 2)).code == "rate_limit");
  const std::string other_session = t.h.NewSession(SessionOrdering::kSerial, "u");
  const std::string other = t.h.NewModel(other_session, 0, "u");
  for (int64_t seq = 1; seq < 4; ++seq) {
    CHECK_FALSE(
        t.h.AnswerTo(t.h.Train(other, seq, OperationKind::kForwardBackward, "", "u")).error);
  }
  QuotaRow none;
  none.tenant_id = "t";
  t.h.Post(SetQuota{++t.h.last_call, none, "tenant"});
  CHECK_FALSE(t.h.AnswerTo(t.h.Gradient(t.model, 2)).error);
  CHECK(t.h.store.audit().back().event == "tenant_set_quota");
}

}  // namespace
}  // namespace lathe::engine
