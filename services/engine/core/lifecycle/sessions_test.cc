#include "services/engine/core/lifecycle/sessions.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/engine/core/lifecycle/retention.h"
#include "services/engine/core/requests/duplicate_detection.h"
#include "services/engine/core/requests/requests.h"
#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

CallId Finish(CoreHarness& h, const std::string& session, const std::string& reason = "success") {
  h.Post(FinishSession{++h.last_call, "t", session, reason, ""});
  return h.last_call;
}

TEST_CASE("Session: finishing completes queued work first, then frees everything", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  const CallId step = h.Step(2);
  CHECK_FALSE(h.AnswerTo(Finish(h, h.session)).error.has_value());
  CHECK(h.worker->Holds(h.model));
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK_FALSE(h.worker->Holds(h.model));
  CHECK(h.store.models().at(h.model).state == ModelState::kUnloaded);
  CHECK(h.store.sessions().at(h.session).state == SessionState::kEnded);
}

TEST_CASE("Session: the first reason stays and a repeated finish succeeds", "[core]") {
  CoreHarness h;
  const std::string session = h.NewSession();
  Finish(h, session, "errored");
  CHECK_FALSE(h.AnswerTo(Finish(h, session, "success")).error.has_value());
  CHECK(h.store.sessions().at(session).finish_reason == "errored");
  h.RestartEngine();
  CHECK_FALSE(h.AnswerTo(Finish(h, session, "success")).error.has_value());
}

TEST_CASE("Session: after its end nothing new is taken and heartbeats say so", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  Finish(h, h.session);
  CHECK(h.AnswerTo(h.Gradient(2)).error->code == "session_finished");
  h.RunWorker();
  CHECK(h.AnswerTo(h.Gradient(2)).error->code == "session_finished");
  CHECK(h.AnswerTo(h.CreateModel(h.session, 1)).error->code == "session_finished");
  CHECK(h.AnswerTo(SendHeartbeat(h, h.session)).session_finished);
}

TEST_CASE("Session: 600 s without a sign of life end one that is not kept as expired", "[core]") {
  CoreOptions options;
  options.session_kept = 0;
  CoreHarness h(options);
  h.AttachWorker();
  const std::string silent = h.NewSession();
  const std::string active = h.NewSession();
  const std::string working = h.NewSession();
  const std::string model = h.NewModel(working);
  for (int64_t i = 1; i <= 7; ++i) {
    h.Advance(100 * kSecond);
    CHECK_FALSE(h.AnswerTo(SendHeartbeat(h, active)).session_finished);
    h.Step(model, i);
  }
  CHECK(h.AnswerTo(SendHeartbeat(h, silent)).session_finished);
  CHECK(h.store.sessions().at(silent).finish_reason == "expired");
  CHECK(h.store.sessions().at(working).state == SessionState::kActive);
}

TEST_CASE("Session: one that is silent takes its samples from queue and worker", "[core]") {
  CoreOptions options;
  options.max_inflight_sequences = 1;
  CoreHarness h(options);
  h.AttachWorker();
  const std::string silent = h.NewSession();
  const std::string active = h.NewSession();
  h.Sampler(silent, 0, "");
  h.Sampler(active, 0, "");
  const CallId running = h.Sample(silent + ":sample:0", 1);
  const CallId waiting = h.Sample(silent + ":sample:0", 2);
  const CallId other = h.Sample(active + ":sample:0", 1);
  REQUIRE(h.worker->Received<SendSample>().size() == 1);
  for (int i = 0; i < 7; ++i) {
    h.Advance(100 * kSecond);
    SendHeartbeat(h, active);
  }
  CHECK(h.ErrorOf(running)->code == "cancelled");
  CHECK(h.ErrorOf(waiting)->code == "cancelled");
  REQUIRE(h.worker->Received<SendCancel>().size() == 1);
  CHECK(h.worker->Received<SendCancel>()[0].request_id == h.AnswerTo(running).id);
  // The sample of the live session gets the free place.
  h.RunWorker();
  CHECK(h.StateOf(other) == RequestState::kDone);
}

// A session with six samples that wait for a worker. Each sweep handles two subjects.
struct ManySamples : CoreHarness {
  static CoreOptions Options(int64_t session_kept) {
    CoreOptions options;
    options.max_swept = 2;
    options.session_kept = session_kept;
    return options;
  }

  explicit ManySamples(int64_t session_kept = 10'000 * kSecond)
      : CoreHarness(Options(session_kept)) {
    AttachWorker();
    for (int64_t i = 0; i < kNum; ++i) {
      Sampler(session, i, "");
      calls.push_back(Sample(sampler(i), 1));
    }
  }

  std::string sampler(int64_t i) const { return absl::StrCat(session, ":sample:", i); }
  int64_t NumDone() const {
    return std::count_if(calls.begin(), calls.end(), [&](CallId call) { return Done(call); });
  }

  static constexpr int64_t kNum = 6;
  const std::string session = NewSession();
  std::vector<CallId> calls;
};

TEST_CASE("Session: many samples of a silent one are cancelled in pieces", "[core]") {
  ManySamples h;
  h.Advance(601 * kSecond);
  for (const int64_t num : {2, 4, 6, 6}) {
    CHECK(h.NumDone() == num);
    h.Tick();
  }
}

TEST_CASE("Session: a client that comes back keeps the samples that were not cancelled yet",
          "[core]") {
  ManySamples h;
  h.Advance(601 * kSecond);
  SendHeartbeat(h, h.session);
  for (int i = 0; i < 5; ++i) h.Tick();
  CHECK(h.NumDone() == 2);
  h.RunWorker();
  CHECK(h.NumDone() == 6);
  CHECK(h.StateOf(h.calls.back()) == RequestState::kDone);
}

TEST_CASE("Session: an expired one takes nothing while it is released in pieces", "[core]") {
  ManySamples h(/*session_kept=*/0);
  h.Advance(601 * kSecond);
  int num_ticks = 0;
  for (; h.store.sessions().at(h.session).state != SessionState::kEnded; ++num_ticks) {
    REQUIRE(num_ticks < 20);
    CHECK(h.AnswerTo(h.Sample(h.sampler(5), 2)).error->code == "session_finished");
    CHECK(h.AnswerTo(h.Sampler(h.session, 50, "")).error->code == "session_finished");
    h.Tick();
  }
  CHECK(num_ticks >= 4);
  CHECK(h.NumDone() == 6);
  CHECK(h.store.samplers().empty());
}

TEST_CASE("Session: another leader releases what is left of an expired one", "[core]") {
  ManySamples h(/*session_kept=*/0);
  h.Advance(601 * kSecond);
  for (int i = 0; i < 3; ++i) h.Tick();
  REQUIRE(h.store.sessions().at(h.session).state == SessionState::kFinished);
  h.RestartEngine();
  h.AttachWorker("p2");
  for (int i = 0; i < 10; ++i) h.Tick();
  h.RunWorker();
  for (int i = 0; i < 10; ++i) h.Tick();
  CHECK(h.store.sessions().at(h.session).state == SessionState::kEnded);
  CHECK(h.store.samplers().empty());
}

TEST_CASE("Session: time without a leader is not silence", "[core]") {
  CoreHarness h;
  const std::string session = h.NewSession();
  h.now += 3600 * kSecond;
  h.RestartEngine();
  h.Tick();
  CHECK_FALSE(h.AnswerTo(SendHeartbeat(h, session)).session_finished);
}

TEST_CASE("Session: heartbeats are written at most once a minute", "[core]") {
  CoreHarness h;
  const std::string session = h.NewSession();
  const int64_t created = h.store.sessions().at(session).heartbeat_at;
  h.Advance(30 * kSecond);
  SendHeartbeat(h, session);
  h.Tick();
  CHECK(h.store.sessions().at(session).heartbeat_at == created);
  h.Advance(40 * kSecond);
  SendHeartbeat(h, session);
  h.Tick();
  CHECK(h.store.sessions().at(session).heartbeat_at > created);
}

TEST_CASE("Session: its end releases the requests that wait over a gap", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession(SessionOrdering::kConcurrent);
  const std::string model = h.NewModel(session);
  const CallId call = h.Gradient(model, 5);
  Finish(h, session);
  h.RunWorker();
  CHECK(h.StateOf(call) == RequestState::kDone);
  CHECK(h.store.sessions().at(session).state == SessionState::kEnded);
}

TEST_CASE("Unload: it waits for everything before it and is repeatable", "[core]") {
  ModelHarness h;
  const CallId step = h.Step(1);
  const CallId unload =
      h.SubmitArgs(h.model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
  const CallId again =
      h.SubmitArgs(h.model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
  CHECK(h.AnswerTo(again).id == h.AnswerTo(unload).id);
  CHECK(h.AnswerTo(h.Step(2)).error->code == "model_unloaded");
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.ResultOf(unload)->model_id == h.model);
  CHECK_FALSE(h.worker->Holds(h.model));
  CHECK(h.worker->Received<SendDropAdapter>().size() == 1);
}

TEST_CASE("Drain: no new work, what runs completes, unsaved models are named", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string saved = h.NewModel(session, 0);
  const std::string unsaved = h.NewModel(session, 1);
  h.Step(saved, 1);
  h.Save(saved, 2, {.name = "a"});
  h.Step(unsaved, 1);
  const CallId drain = ++h.last_call;
  h.Post(Drain{drain});
  CHECK(h.AnswerTo(h.Step(unsaved, 2)).error->status == absl::StatusCode::kUnavailable);
  CHECK(h.FindAnswer(drain) == nullptr);
  h.RunWorker();
  CHECK(h.AnswerTo(drain).unsaved_model_ids == std::vector<std::string>{unsaved});
  CHECK(h.AnswerTo(drain).pending_requests == 0);
}

TEST_CASE("Drain: requests that cannot run stay accepted for the next start", "[core]") {
  ModelHarness h;
  h.DetachWorker();
  const CallId step = h.Step(1);
  h.Post(Drain{++h.last_call});
  CHECK(h.AnswerTo(h.last_call).pending_requests == 1);
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Retention: an hour after delivery a request is forgotten, a day without", "[core]") {
  SamplerHarness h;
  const std::string delivered = h.AnswerTo(h.Sample(h.sampler, 1)).id;
  const std::string waiting = h.AnswerTo(h.Sample(h.sampler, 2)).id;
  h.RunWorker();
  h.Post(Delivered{delivered, "t"});
  for (int i = 0; i < 8; ++i) {
    h.Advance(500 * kSecond);
    SendHeartbeat(h, h.session);
  }
  CHECK(h.store.requests().count(delivered) == 0);
  CHECK(h.store.requests().count(waiting) == 1);
  CHECK(h.AnswerTo(h.Sample(h.sampler, 1)).id != delivered);
  CHECK(h.AnswerTo(h.Sample(h.sampler, 2)).id == waiting);
}

TEST_CASE("Retention: of very many the delivered ones are forgotten after a minute", "[core]") {
  constexpr int64_t kMany = 65536;
  State s{CoreOptions()};
  s.now = 1000 * kSecond;
  const auto add = [&](const std::string& id, int64_t delivered_at) {
    RequestRow& row = s.requests[id].row;
    row.request_id = id;
    row.op_class = OpClass::kSample;
    row.delivered_at = delivered_at;
    row.done_at = s.now - 100 * kSecond;
    AddToRetention(s, row);
  };
  add("old", s.now - 61 * kSecond);
  add("new", s.now - 59 * kSecond);
  for (int64_t i = 0; i < kMany - 2; ++i) add(absl::StrCat("waiting", i), /*delivered_at=*/0);
  PurgeOldResults(s);
  CHECK(s.requests.count("old") == 1);  // below the limit

  add("one more", /*delivered_at=*/0);
  add("another", /*delivered_at=*/0);
  s.now += kSecond / 2;
  s.purged_at = 0;
  PurgeOldResults(s);
  CHECK(s.requests.count("old") == 0);
  CHECK(s.requests.count("new") == 1);  // duplicates may still arrive
  CHECK(static_cast<int64_t>(s.requests.size()) == kMany + 1);
}

TEST_CASE("Retention: one result that is not fetched does not keep the delivered ones", "[core]") {
  constexpr int64_t kMany = 65536;
  State s{CoreOptions()};
  const int64_t undelivered_kept = s.options.result_kept_undelivered;
  s.now = undelivered_kept + 1000 * kSecond;
  const auto add = [&](const std::string& id, int64_t done_at, int64_t delivered_at) {
    RequestRow& row = s.requests[id].row;
    row.request_id = id;
    row.op_class = OpClass::kSample;
    row.done_at = done_at;
    row.delivered_at = delivered_at;
    AddToRetention(s, row);
  };
  // First in the order of expiry, but not expired yet.
  add("waiting", s.now - undelivered_kept + 100 * kSecond, /*delivered_at=*/0);
  for (int64_t i = 0; i < 2 * kMany; ++i) {
    add(absl::StrCat("delivered", i), s.now - 70 * kSecond, s.now - 65 * kSecond);
  }
  int num_steps = 1;
  for (PurgeOldResults(s); s.is_forgetting; ++num_steps) ContinuePurge(s);
  CHECK(num_steps > 4);  // one Step forgets a bounded number
  CHECK(static_cast<int64_t>(s.requests.size()) == kMany);
  CHECK(s.requests.count("waiting") == 1);
  CHECK(s.retention.size() == s.requests.size());
  CHECK(s.forgettable.size() == s.requests.size() - 1);
}

TEST_CASE("Retention: an open gradient outlives its requests and a restart", "[core]") {
  ModelHarness h;
  const CallId gradient = h.Gradient(1);
  h.RunWorker();
  h.Post(Delivered{h.AnswerTo(gradient).id, "t"});
  for (int i = 0; i < 8; ++i) {
    h.Advance(500 * kSecond);
    SendHeartbeat(h, h.session);
  }
  REQUIRE(h.store.requests().count(h.AnswerTo(gradient).id) == 0);
  h.RestartEngine();
  h.ReattachWorker();
  CHECK(IsClosedSeq(h.AnswerTo(h.Gradient(1))));
  const CallId step = h.Step(2);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->History(h.model).back() == "step 2 [1]");
}

TEST_CASE("Sessions: a project stays with the session, and with one that is forgotten here",
          "[core]") {
  CoreHarness h;
  const std::string session = h.NewSession();
  const auto assign = [&](const std::string& project) {
    h.Post(AssignSessionProject{++h.last_call, "t", session, project, "key"});
    CHECK_FALSE(h.AnswerTo(h.last_call).error);
    return h.store.sessions().at(session).project_id;
  };
  CHECK(assign("p1") == "p1");
  h.Post(FinishSession{++h.last_call, "t", session, "success", ""});
  CHECK(h.store.sessions().at(session).project_id == "p1");
  // Ended sessions leave the core after a day.
  h.Advance(48 * 3600 * kSecond);
  CHECK(assign("p2") == "p2");
  REQUIRE(h.store.audit().size() == 2);
  CHECK(h.store.audit()[1].event == "project_assign_session");
  CHECK(h.store.audit()[1].object == session);
  CHECK(h.store.audit()[1].actor == "key");
  CHECK(h.store.audit()[1].details == Metadata{{"project_id", "p2"}});
}

}  // namespace
}  // namespace lathe::engine
