// Limits on what a tenant may pile up. The harness compares the counters behind them with a recount
// after every Step.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

// A tenant "t" with one model.
struct Holder {
  CoreHarness h;
  std::string session;
  std::string model;

  explicit Holder(CoreOptions options = {}) : h(options) {
    h.AttachWorker();
    session = h.NewSession();
    model = h.NewModel(session);
  }

  void SetQuota(QuotaRow quota) {
    quota.tenant_id = "t";
    h.Post(engine::SetQuota{++h.last_call, quota, "tenant"});
  }
  CallId NewSession() {
    CreateSession event{.call = ++h.last_call, .row = {}};
    event.row.tenant_id = "t";
    h.Post(event);
    return h.last_call;
  }
  std::string CodeOf(CallId call) const {
    const auto& error = h.AnswerTo(call).error;
    return error ? error->code : "";
  }
  std::string MessageOf(CallId call) const { return h.AnswerTo(call).error->message; }
  TenantUsage Usage() const { return h.tenants.at("t").usage; }
  const RequestRow& RowOf(CallId call) const { return h.store.requests().at(h.AnswerTo(call).id); }
  bool IsRemoved(CallId call) const { return RowOf(call).result_bytes < 0; }

  // Runs gradients from seq `from` on and returns their calls.
  std::vector<CallId> Train(int64_t from, int64_t count) {
    std::vector<CallId> calls;
    for (int64_t seq = from; seq < from + count; ++seq) {
      calls.push_back(h.Gradient(model, seq));
      h.RunWorker();
    }
    h.Tick();
    return calls;
  }
  void Deliver(CallId call) { h.Post(Delivered{h.AnswerTo(call).id, "t"}); }
};

TEST_CASE("Limits: unfetched results above the limit are removed, the oldest first", "[core]") {
  CoreOptions options;
  options.max_unfetched_results_per_tenant = 3;
  Holder t(options);
  const std::vector<CallId> first = t.Train(1, 2);
  t.Deliver(first[0]);
  CHECK(t.Usage().unfetched_results == 2);  // with that of the model's creation
  const std::vector<CallId> next = t.Train(3, 3);
  CHECK(t.Usage().unfetched_results == 3);
  CHECK_FALSE(t.IsRemoved(first[0]));  // a delivered one does not count
  CHECK(t.IsRemoved(first[1]));
  for (const CallId call : next) CHECK_FALSE(t.IsRemoved(call));
  // The request itself is not forgotten.
  CHECK(t.h.AnswerTo(t.h.Gradient(t.model, 2)).id == t.h.AnswerTo(first[1]).id);
  t.Deliver(first[1]);
  CHECK(t.Usage().unfetched_results == 3);
}

TEST_CASE("Limits: above the total, the tenant with most unfetched results loses its oldest",
          "[core]") {
  CoreOptions options;
  options.max_unfetched_results_total = 5;
  Holder t(options);
  const std::vector<CallId> calls = t.Train(1, 4);  // 5 with that of the model's creation
  CHECK_FALSE(t.IsRemoved(calls[0]));
  const std::string other =
      t.h.NewModel(t.h.NewSession(SessionOrdering::kSerial, "small"), 0, "small");
  t.h.Tick();
  CHECK(t.Usage().unfetched_results == 4);
  const CallId gradient = t.h.Train(other, 1, OperationKind::kForwardBackward, "", "small");
  t.h.RunWorker();
  t.h.Tick();
  CHECK(t.Usage().unfetched_results == 3);
  CHECK(t.IsRemoved(calls[0]));
  CHECK_FALSE(t.IsRemoved(calls[1]));
  CHECK_FALSE(t.IsRemoved(gradient));
  t.h.RestartEngine();
  CHECK(t.Usage().unfetched_results == 3);
}

TEST_CASE("Limits: the bytes of unfetched results are limited, one result always stays", "[core]") {
  CoreOptions options;
  options.max_unfetched_bytes_per_tenant = 1;
  Holder t(options);
  const std::vector<CallId> calls = t.Train(1, 3);
  CHECK(t.IsRemoved(calls[0]));
  CHECK(t.IsRemoved(calls[1]));
  CHECK_FALSE(t.IsRemoved(calls[2]));
}

TEST_CASE("Limits: a lower quota removes results at once, more in the next Steps", "[core]") {
  CoreOptions options;
  options.max_swept = 2;
  Holder t(options);
  const std::vector<CallId> calls = t.Train(1, 6);
  t.SetQuota({.unfetched_results = 1});
  for (int i = 0; i < 4; ++i) t.h.Tick();
  CHECK(t.Usage().unfetched_results == 1);
  CHECK_FALSE(t.IsRemoved(calls.back()));
  t.h.RestartEngine();
  CHECK(t.Usage().unfetched_results == 1);
}

TEST_CASE("Limits: a step after a failure whose result was removed is refused", "[core]") {
  CoreOptions options;
  options.max_unfetched_results_per_tenant = 1;
  Holder t(options);
  t.h.worker->FailOnce(t.model, 1, {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
  const std::vector<CallId> calls = t.Train(1, 2);
  REQUIRE(t.IsRemoved(calls[0]));
  const bool restarts = GENERATE(false, true);
  if (restarts) {
    t.h.RestartEngine();
    t.h.ReattachWorker();
  }
  const CallId step = t.h.Step(t.model, 3);
  t.h.RunWorker();
  REQUIRE(t.h.ErrorOf(step).has_value());
  CHECK(t.h.ErrorOf(step)->code == "incomplete_gradient");
}

TEST_CASE("Limits: sessions are limited until they have ended", "[core]") {
  CoreOptions options;
  options.max_sessions_per_tenant = 2;
  Holder t(options);
  const CallId second = t.NewSession();
  CHECK(t.CodeOf(second) == "");
  const CallId third = t.NewSession();
  CHECK(t.h.AnswerTo(third).error->status == absl::StatusCode::kPermissionDenied);
  CHECK(t.CodeOf(third) == "session_quota");
  CHECK_THAT(t.MessageOf(third), Catch::Contains("sessions is 2 and 2 are live"));
  t.h.RestartEngine();
  CHECK(t.CodeOf(t.NewSession()) == "session_quota");
  t.h.Post(FinishSession{++t.h.last_call, "t", t.h.AnswerTo(second).id, "success", ""});
  CHECK(t.CodeOf(t.NewSession()) == "");
  CHECK(t.CodeOf(t.NewSession()) == "session_quota");
  t.SetQuota({.sessions = 0});
  CHECK(t.CodeOf(t.NewSession()) == "");
  // Sessions that ended by themselves count no longer.
  t.h.Advance(options.session_kept + options.session_timeout);
  for (int i = 0; i < 3; ++i) t.h.Tick();
  CHECK(t.Usage().sessions == 0);
}

TEST_CASE("Limits: new sessions count in requests_per_minute", "[core]") {
  Holder t;
  t.h.Advance(61 * kSecond);
  t.SetQuota({.requests_per_minute = 1});
  CHECK(t.CodeOf(t.NewSession()) == "");
  CHECK(t.CodeOf(t.NewSession()) == "rate_limit");
  CHECK(t.CodeOf(t.h.Gradient(t.model, 1)) == "rate_limit");
  t.h.RestartEngine();
  CHECK(t.CodeOf(t.NewSession()) == "rate_limit");
}

TEST_CASE("Limits: samplers are limited, with those that queued saves will make", "[core]") {
  CoreOptions options;
  options.max_samplers_per_tenant = 2;
  Holder t(options);
  const auto save = [&](int64_t seq) {
    return t.h.Save(t.model, seq, {.sampling_session_seq_id = seq},
                    OperationKind::kSaveWeightsForSampler);
  };
  CHECK(t.CodeOf(save(1)) == "");
  CHECK(t.Usage().reserved_samplers == 1);
  CHECK(t.CodeOf(t.h.Sampler(t.session, 10, "")) == "");
  const CallId refused = save(2);
  CHECK(t.CodeOf(refused) == "sampler_quota");
  CHECK_THAT(t.MessageOf(refused), Catch::Contains("samplers is 2 and 2 are live or being saved"));
  CHECK(t.CodeOf(t.h.Sampler(t.session, 11, "")) == "sampler_quota");
  // A sampler that exists is answered.
  CHECK(t.CodeOf(t.h.Sampler(t.session, 10, "")) == "");
  t.h.RunWorker();
  CHECK(t.Usage().samplers == 2);
  CHECK(t.Usage().reserved_samplers == 0);
  t.h.RestartEngine();
  CHECK(t.Usage().samplers == 2);
}

TEST_CASE("Limits: queued saves reserve storage", "[core]") {
  Holder t;
  t.h.Save(t.model, 1, {.name = "a"});
  t.h.RunWorker();  // the fake worker's checkpoints have 100 bytes
  t.SetQuota({.stored_bytes = 300});
  CHECK(t.CodeOf(t.h.Save(t.model, 2, {.name = "b"})) == "");
  CHECK(t.CodeOf(t.h.Save(t.model, 3, {.name = "c"})) == "");
  CHECK(t.Usage().reserved_bytes == 200);
  const CallId refused = t.h.Save(t.model, 4, {.name = "d"});
  CHECK(t.CodeOf(refused) == "storage_quota");
  CHECK_THAT(t.MessageOf(refused),
             Catch::Contains("stored_bytes is 300 and checkpoints hold 100 and unfinished saves "
                             "will need about 200"));
  t.h.RestartEngine();
  CHECK(t.Usage().reserved_bytes == 200);
  t.h.ReattachWorker();
  t.h.RunWorker();
  CHECK(t.Usage().reserved_bytes == 0);
}

TEST_CASE("Limits: a request whose body was withheld is refused, a repetition is answered",
          "[core]") {
  Holder t;
  const CallId known = t.h.Gradient(t.model, 1, "a");
  Submit again;
  again.tenant_id = "t";
  again.owner_id = t.model;
  again.seq_id = 1;
  again.content_hash = t.RowOf(known).content_hash;
  again.args = TrainArgs{};
  again.payload = {.bytes = 10, .tokens = 10, .is_withheld = true};
  CHECK(t.h.AnswerTo(t.h.Send(again)).id == t.h.AnswerTo(known).id);
  Submit fresh = again;
  fresh.seq_id = 2;
  const CallId refused = t.h.Send(fresh);
  CHECK(t.CodeOf(refused) == "queue_quota");
  CHECK_THAT(t.MessageOf(refused), Catch::Contains("10 bytes and 10 tokens"));
  t.h.RunWorker();
  CHECK(t.h.worker->History(t.model).size() == 1);
}

TEST_CASE("Limits: the published room agrees with what is refused", "[core]") {
  CoreOptions options;
  options.max_rows_per_tenant = 2;
  Holder t(options);
  t.h.Advance(61 * kSecond);
  t.SetQuota({.tokens_per_minute = 15});
  const auto room = [&] { return t.h.tenants.at("t").room; };
  const auto allows = [&](int64_t tokens) {
    return room().Allows({.bytes = 10, .tokens = tokens}, t.h.now);
  };
  CHECK(allows(100));        // in an empty minute
  t.h.Gradient(t.model, 1);  // 10 tokens
  CHECK(allows(5));
  CHECK_FALSE(allows(6));
  CHECK(t.CodeOf(t.h.Train(t.model, 2, OperationKind::kForwardBackward, "", "t", 5)) == "");
  CHECK(room().rows == 0);
  CHECK_FALSE(allows(0));
  t.h.RunWorker();
  CHECK(allows(0));
  CHECK_FALSE(allows(1));
  t.h.Advance(60 * kSecond);
  CHECK(allows(1));
}

}  // namespace
}  // namespace lathe::engine
