#include "services/engine/core/lifecycle/submissions.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

TEST_CASE("Submit: a request is answered only after its commit", "[core]") {
  ModelHarness h;
  h.HoldCommits();
  const CallId call = h.Gradient(1);
  CHECK(h.FindAnswer(call) == nullptr);
  CHECK(h.worker->Received<SendTrainBatch>().empty());
  h.CommitOne();
  CHECK_FALSE(h.AnswerTo(call).id.empty());
  CHECK(h.worker->Received<SendTrainBatch>().size() == 1);
  CHECK_FALSE(h.HasCommits());
}

TEST_CASE("Submit: a request that is ready at once is committed as dispatched in one write",
          "[core]") {
  ModelHarness h;
  const CallId call = h.Step(1);
  const RequestRow& row = h.store.requests().at(h.AnswerTo(call).id);
  CHECK(row.state == RequestState::kDispatched);
  CHECK(row.epoch == h.worker->epoch());
}

TEST_CASE("Submit: a step without seq is found again by its idempotency key", "[core]") {
  ModelHarness h;
  Submit step{.tenant_id = "t",
              .owner_id = h.model,
              .seq_id = 0,
              .kind = OperationKind::kOptimStep,
              .idempotency_key = "once",
              .args = OptimStepArgs{}};
  const CallId first = h.Send(step);
  h.RunWorker();
  const CallId again = h.Send(step);
  h.RestartEngine();
  h.ReattachWorker();
  const CallId later = h.Send(step);
  CHECK(h.AnswerTo(again).id == h.AnswerTo(first).id);
  CHECK(h.AnswerTo(later).id == h.AnswerTo(first).id);
  step.content_hash = "other";
  CHECK(h.AnswerTo(h.Send(step)).error->code == "idempotency_key_reused");
  step.idempotency_key = "another";
  const CallId other = h.Send(step);
  h.RunWorker();
  CHECK(h.worker->History(h.model) == std::vector<std::string>{"step 1 []", "step 2 []"});
  step.seq_id = 3;  // a seq goes before the key
  CHECK(h.AnswerTo(h.Send(step)).id != h.AnswerTo(other).id);
}

TEST_CASE("Submit: a repeated key gets the same request and runs once", "[core]") {
  ModelHarness h;
  const CallId first = h.Gradient(1, "same");
  const CallId during = h.Gradient(1, "same");
  h.RunWorker();
  const CallId after = h.Gradient(1, "same");
  h.RunWorker();
  CHECK(h.AnswerTo(during).id == h.AnswerTo(first).id);
  CHECK(h.AnswerTo(after).id == h.AnswerTo(first).id);
  CHECK(h.worker->History(h.model) == std::vector<std::string>{"fb 1"});
}

TEST_CASE("Submit: a seq far above all that came is refused and abandons nothing", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  const CallId far = h.Gradient(65538);
  REQUIRE(h.AnswerTo(far).error);
  CHECK(h.AnswerTo(far).error->status == absl::StatusCode::kResourceExhausted);
  CHECK(h.AnswerTo(far).error->code == "too_far_ahead");
  CHECK(h.AnswerTo(far).error->message ==
        "seq_id is 65538, limit is 65537: the last that came is 1");
  CHECK_FALSE(h.AnswerTo(h.Gradient(2)).error);
  CHECK_FALSE(h.AnswerTo(h.Gradient(65538)).error);
}

TEST_CASE("Submit: a repetition waits for the commit of the original", "[core]") {
  ModelHarness h;
  h.HoldCommits();
  h.Gradient(1, "same");
  const CallId again = h.Gradient(1, "same");
  CHECK(h.FindAnswer(again) == nullptr);
  h.CommitAll();
  CHECK_FALSE(h.AnswerTo(again).id.empty());
}

TEST_CASE("Submit: a repeated key is known after a restart", "[core]") {
  ModelHarness h;
  const CallId first = h.Gradient(1, "same");
  h.RunWorker();
  h.RestartEngine();
  h.ReattachWorker();
  const CallId again = h.Gradient(1, "same");
  CHECK(h.AnswerTo(again).id == h.AnswerTo(first).id);
}

TEST_CASE("Submit: another kind or content under the same seq is refused by name", "[core]") {
  ModelHarness h;
  h.Gradient(1, "one");
  const CallId content = h.Gradient(1, "two");
  const CallId kind = h.Step(1);
  for (const CallId call : {content, kind}) {
    REQUIRE(h.AnswerTo(call).error.has_value());
    CHECK(h.AnswerTo(call).error->code == "seq_id_reused");
    CHECK(h.AnswerTo(call).error->status == absl::StatusCode::kInvalidArgument);
    CHECK(h.AnswerTo(call).error->message.find("seq_id 1") != std::string::npos);
  }
}

TEST_CASE("Submit: without a seq the next one is taken", "[core]") {
  ModelHarness h;
  h.Gradient(0);
  h.Gradient(0);
  h.Step(0);
  h.RunWorker();
  CHECK(h.worker->History(h.model) == std::vector<std::string>{"fb 1", "fb 2", "step 3 [1,2]"});
}

TEST_CASE("Submit: a foreign model looks like an absent one", "[core]") {
  ModelHarness h;
  const CallId foreign = h.Train(h.model, 1, OperationKind::kOptimStep, "", "other");
  const CallId absent = h.Train(h.model + "9", 1, OperationKind::kOptimStep, "", "other");
  CHECK(h.AnswerTo(foreign).error->status == absl::StatusCode::kNotFound);
  CHECK(h.AnswerTo(foreign).error->message + "9" !=
        h.AnswerTo(absent).error->message);  // the id is in it
  CHECK(h.AnswerTo(foreign).error->code == h.AnswerTo(absent).error->code);
}

TEST_CASE("Submit: an invalid forward_backward fails through its future", "[core]") {
  ModelHarness h;
  Submit submit;
  submit.tenant_id = "t";
  submit.owner_id = h.model;
  submit.seq_id = 1;
  submit.args = TrainArgs{};
  submit.payload = {"bad-body", 10, 1};
  submit.invalid = ErrorInfo{absl::StatusCode::kInvalidArgument, "bad_token", "data", "no"};
  const CallId call = h.Send(submit);
  CHECK(h.Done(call));
  CHECK(h.ErrorOf(call)->code == "bad_token");
  CHECK(h.forgotten_bodies.count("bad-body") == 1);
}

TEST_CASE("Submit: an invalid optim_step is refused and its seq consumed", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kConcurrent));
  Submit submit;
  submit.tenant_id = "t";
  submit.owner_id = model;
  submit.seq_id = 1;
  submit.kind = OperationKind::kOptimStep;
  submit.args = OptimStepArgs{};
  submit.invalid = ErrorInfo{absl::StatusCode::kInvalidArgument, "bad_optimizer", "beta1", "no"};
  const CallId call = h.Send(submit);
  CHECK(h.AnswerTo(call).error->code == "bad_optimizer");
  h.RestartEngine();
  h.ReattachWorker();
  const CallId next = h.Gradient(model, 2);
  h.RunWorker();
  CHECK(h.Done(next));
  const CallId again = h.Step(model, 1);
  CHECK(h.AnswerTo(again).error->code == "seq_id_refused");
}

TEST_CASE("Submit: over a bound it is refused with the bound's name", "[core]") {
  CoreOptions options;
  options.max_rows_per_model = 2;
  ModelHarness h(options);
  h.Gradient(1);
  h.Gradient(2);
  const CallId third = h.Gradient(3);
  CHECK(h.AnswerTo(third).error->status == absl::StatusCode::kResourceExhausted);
  CHECK(h.AnswerTo(third).error->code == "max_rows_per_model");
  h.RunWorker();
  CHECK_FALSE(h.AnswerTo(h.Gradient(3)).error.has_value());
}

TEST_CASE("Submit: the total bound never refuses a tenant below its share", "[core]") {
  CoreOptions options;
  options.max_rows_total = 4;
  CoreHarness h(options);
  h.AttachWorker();
  const std::string greedy = h.NewModel(h.NewSession());
  const std::string modest = h.NewModel(h.NewSession(SessionOrdering::kSerial, "u"), 0, "u");
  for (int64_t seq = 1; seq <= 4; ++seq) h.Gradient(greedy, seq);
  CHECK(h.AnswerTo(h.Gradient(greedy, 5)).error->code == "max_rows_total");
  const CallId call = h.Train(modest, 1, OperationKind::kForwardBackward, "", "u");
  CHECK_FALSE(h.AnswerTo(call).error.has_value());
}

TEST_CASE("Submit: a refused submission's body is forgotten", "[core]") {
  CoreHarness h;
  h.Gradient("nobody", 1);
  CHECK(h.forgotten_bodies.size() == 1);
}

}  // namespace
}  // namespace lathe::engine
