#include "services/engine/core/requests/quotas.h"

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

TEST_CASE("Quotas: queued bytes, stored bytes and live models are bounded", "[core]") {
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

TEST_CASE("Quotas: a model is rebuilt as it was created after a refusal and a restart", "[core]") {
  Limited t({.stored_bytes = 1});
  t.h.Save(t.model, 1, {.name = "a"});
  t.h.RunWorker();
  CHECK(t.Refusal(t.h.Save(t.model, 2, {.name = "b"})).code == "storage_quota");
  t.h.RestartEngine();
  t.h.AttachWorker("p2");
  t.h.RunWorker();
  const SendCreateAdapter* created = nullptr;
  for (const Action& action : t.h.actions) {
    const auto* const send = std::get_if<SendToWorker>(&action);
    if (send == nullptr) continue;
    if (const auto* const one = std::get_if<SendCreateAdapter>(&send->command)) created = one;
  }
  REQUIRE(created != nullptr);
  CHECK(created->lora.seed == t.h.store.models().at(t.model).lora.seed);
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

namespace {

constexpr int64_t kHour = 3600 * kSecond;

struct Used {
  CoreHarness h;
  std::string session;
  std::string model;

  Used() {
    h.AttachWorker();
    session = h.NewSession();
    model = h.NewModel(session);
  }

  void Train(int64_t seq, OperationKind kind, int64_t tokens) {
    h.Train(model, seq, kind, "", "t", tokens);
  }

  // Sum of all rows. Storage counts once, as it is a level.
  UsageRow Total() const {
    UsageRow total;
    for (const UsageRow& row : h.store.usage()) {
      CHECK(row.tenant_id == "t");
      CHECK(row.base_model == "base");
      CHECK(row.session_id == (row.stored_bytes > 0 ? "" : session));
      CHECK(row.hour % kHour == 0);
      total.forward_tokens += row.forward_tokens;
      total.forward_backward_tokens += row.forward_backward_tokens;
      total.prefill_tokens += row.prefill_tokens;
      total.cached_prefill_tokens += row.cached_prefill_tokens;
      total.sampled_tokens += row.sampled_tokens;
      total.num_checkpoints += row.num_checkpoints;
      total.stored_bytes = std::max(total.stored_bytes, row.stored_bytes);
    }
    return total;
  }
};

TEST_CASE("Usage: passes, samples and saves are counted by kind", "[core]") {
  Used t;
  t.Train(1, OperationKind::kForward, 5);
  t.Train(2, OperationKind::kForwardBackward, 7);
  t.Train(3, OperationKind::kForwardBackward, 11);
  t.h.Step(t.model, 4);
  t.h.Save(t.model, 5, {.name = "a"});
  t.h.Save(t.model, 6, {.sampling_session_seq_id = 9}, OperationKind::kSaveWeightsForSampler);
  t.h.RunWorker();
  t.h.Sample(t.session + ":sample:9", 1, {2, 3, 6, false, 0});
  CHECK(t.Total().sampled_tokens == 0);
  t.h.RunWorker();
  const UsageRow total = t.Total();
  CHECK(total.forward_tokens == 5);
  CHECK(total.forward_backward_tokens == 18);
  CHECK(total.prefill_tokens == 2);
  CHECK(total.cached_prefill_tokens == 1);
  CHECK(total.sampled_tokens == 6);
  CHECK(total.num_checkpoints == 1);
  CHECK(t.h.store.usage().size() == 5);
}

TEST_CASE("Usage: failed requests are not counted", "[core]") {
  Used t;
  t.h.worker->FailOnce(t.model, 1, {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
  t.Train(1, OperationKind::kForwardBackward, 7);
  t.h.RunWorker();
  CHECK(t.h.store.usage().empty());
}

TEST_CASE("Usage: a result that a crash undid is counted when it is there again", "[core]") {
  Used t;
  t.Train(1, OperationKind::kForwardBackward, 7);
  const bool is_durable = GENERATE(false, true);
  t.h.HoldCommits();
  t.h.RunWorkerOnce();
  REQUIRE(t.h.HasCommits());
  if (is_durable) t.h.CommitAll();
  t.h.RestartEngine();
  t.h.ReattachWorker();
  t.h.CommitAll();
  t.h.RunWorker();
  t.h.CommitAll();
  CHECK(t.Total().forward_backward_tokens == 7);
}

TEST_CASE("Usage: stored bytes are counted once in each hour", "[core]") {
  Used t;
  t.h.Save(t.model, 1, {.name = "a"});
  t.h.Save(t.model, 2, {.name = "b"});
  t.h.RunWorker();
  t.h.Tick();
  CHECK(t.Total().stored_bytes == 200);
  const size_t rows = t.h.store.usage().size();
  t.h.Tick();
  CHECK(t.h.store.usage().size() == rows);
  t.h.Post(DeleteCheckpoint{++t.h.last_call, "t", "tinker://" + t.model + "/weights/b"});
  t.h.Advance(kHour);
  REQUIRE(t.h.store.usage().size() == rows + 1);
  CHECK(t.h.store.usage().back().stored_bytes == 100);
  CHECK(t.h.store.usage().back().hour == t.h.now - t.h.now % kHour);
}

}  // namespace

}  // namespace lathe::engine
