#include "services/engine/core/models/operations.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

using History = std::vector<std::string>;

TEST_CASE("Order: pipelined operations run in seq order around barriers", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  h.Gradient(2);
  h.Step(3);
  h.Gradient(4);
  h.Step(5);
  h.RunWorker();
  CHECK(h.worker->History(h.model) ==
        History{"fb 1", "fb 2", "step 3 [1,2]", "fb 4", "step 5 [4]"});
  CHECK(h.store.models().at(h.model).applied_seq == 5);
}

TEST_CASE("Order: chunks that arrive as 2, 3, 1 run before the step", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kConcurrent));
  h.Gradient(model, 2);
  h.Gradient(model, 3);
  h.RunWorker();
  CHECK(h.worker->History(model).empty());
  h.Gradient(model, 1);
  h.Step(model, 4);
  h.RunWorker();
  CHECK(h.worker->History(model) == History{"fb 1", "fb 2", "fb 3", "step 4 [1,2,3]"});
}

TEST_CASE("Order: in a serial session an arrival closes every smaller missing seq", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kSerial));
  h.HoldCommits();
  const CallId call = h.Gradient(model, 3);
  h.CommitAll();
  CHECK(h.store.models().at(model).closed_seq == 2);
  h.RunWorker();
  CHECK(h.Done(call));
  const CallId late = h.Gradient(model, 2);
  h.CommitAll();
  CHECK(h.AnswerTo(late).error->code == "seq_id_abandoned");
}

TEST_CASE("Order: a closed seq stays closed after a restart", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kSerial));
  h.Gradient(model, 3);
  h.RestartEngine();
  h.ReattachWorker();
  CHECK(h.AnswerTo(h.Gradient(model, 2)).error->code == "seq_id_abandoned");
}

TEST_CASE("Order: in a concurrent session a gradient waits gap_timeout above a gap", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kConcurrent));
  const CallId call = h.Gradient(model, 2);
  h.Advance(329 * kSecond);
  h.RunWorker();
  CHECK_FALSE(h.Done(call));
  h.Advance(2 * kSecond);
  h.RunWorker();
  CHECK(h.Done(call));
  CHECK(h.AnswerTo(h.Gradient(model, 1)).error->code == "seq_id_abandoned");
}

TEST_CASE("Order: in a concurrent session a step does not wait for a gap", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kConcurrent));
  h.Gradient(model, 1);
  const CallId step = h.Step(model, 3);
  h.RunWorker();
  CHECK(h.Done(step));
  CHECK(h.worker->History(model) == History{"fb 1", "step 3 [1]"});
}

const ErrorInfo kBadDatum{absl::StatusCode::kInvalidArgument, "x", "", "bad"};

// Runs a forward_backward that fails.
CallId FailGradient(ModelHarness& h, int64_t seq) {
  h.worker->FailOnce(h.model, seq, kBadDatum);
  const CallId failed = h.Gradient(seq);
  h.RunWorker();
  CHECK(h.StateOf(failed) == RequestState::kFailed);
  return failed;
}

void WriteAnswer(ModelHarness& h, CallId call) { h.Post(Delivered{h.AnswerTo(call).id, "t"}); }

TEST_CASE("Gradient: a step sent behind a failure is refused, and the next one goes on", "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 2, kBadDatum);
  h.Gradient(1);
  h.Gradient(2);
  const CallId step = h.Step(3);
  h.Gradient(4);
  h.Step(5);
  h.RunWorker();
  CHECK(h.ErrorOf(step)->code == "incomplete_gradient");
  CHECK(h.ErrorOf(step)->message ==
        "forward_backward seq 2 failed; the gradient is incomplete, so it was cleared and nothing "
        "was applied: send the whole batch and the optim_step again");
  CHECK(h.worker->History(h.model) == History{"fb 1", "clear", "fb 4", "step 5 [4]"});
  CHECK(h.worker->num_refused_steps() == 0);
}

TEST_CASE("Gradient: a failure behind a success spoils the next step, read or not", "[core]") {
  const bool is_read = GENERATE(true, false);
  ModelHarness h;
  h.Gradient(1);
  const CallId failed = FailGradient(h, 2);
  if (is_read) WriteAnswer(h, failed);
  h.Advance(kSecond);
  const CallId refused = h.Step(3);
  h.Gradient(4);
  const CallId step = h.Step(5);
  h.RunWorker();
  CHECK(h.ErrorOf(refused)->code == "incomplete_gradient");
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->History(h.model) == History{"fb 1", "clear", "fb 4", "step 5 [4]"});
}

TEST_CASE("Gradient: a mended batch goes on once the failure's answer was written", "[core]") {
  const bool is_written = GENERATE(true, false);
  ModelHarness h;
  const CallId failed = FailGradient(h, 1);
  if (is_written) WriteAnswer(h, failed);
  h.Advance(kSecond);
  h.Gradient(2);
  const CallId step = h.Step(3);
  h.RunWorker();
  CHECK(h.StateOf(step) == (is_written ? RequestState::kDone : RequestState::kFailed));
}

TEST_CASE("Gradient: another tenant cannot acknowledge a failure", "[core]") {
  ModelHarness h;
  const CallId failed = FailGradient(h, 1);
  h.Post(Delivered{h.AnswerTo(failed).id, "other"});
  h.Advance(kSecond);
  const CallId step = h.Step(2);
  h.RunWorker();
  CHECK(h.ErrorOf(step)->code == "incomplete_gradient");
}

TEST_CASE("Gradient: the rest of a batch in several requests is no mended batch", "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 1, kBadDatum);
  const CallId failed = h.Gradient(1);
  h.Gradient(2);
  h.RunWorker();
  h.Advance(kSecond);
  WriteAnswer(h, failed);
  h.Advance(kSecond);
  const CallId step = h.Step(3);
  h.RunWorker();
  CHECK(h.ErrorOf(step)->code == "incomplete_gradient");
  CHECK(h.worker->History(h.model) == History{"fb 2", "clear"});
}

TEST_CASE("Gradient: a batch that fails again behind its first part spoils the step", "[core]") {
  ModelHarness h;
  WriteAnswer(h, FailGradient(h, 1));
  h.Advance(kSecond);
  h.Gradient(2);
  WriteAnswer(h, FailGradient(h, 3));
  h.Advance(kSecond);
  h.Gradient(4);
  const CallId step = h.Step(5);
  h.RunWorker();
  CHECK(h.ErrorOf(step)->message.find("seq 3 failed") != std::string::npos);
}

TEST_CASE("Gradient: a load ends the gradient that a failure spoiled", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.Gradient(2);
  FailGradient(h, 3);
  h.SubmitArgs(h.model, OpClass::kTrain, 4, OperationKind::kLoadWeights,
               LoadArgs{.path = "tinker://" + h.model + "/weights/a"});
  h.Gradient(5);
  const CallId step = h.Step(6);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Gradient: what a failure spoils is the same after a restart", "[core]") {
  const bool is_behind = GENERATE(true, false);
  ModelHarness h;
  int64_t seq = 1;
  if (is_behind) h.Gradient(seq++);
  WriteAnswer(h, FailGradient(h, seq++));
  h.Advance(kSecond);
  h.Gradient(seq++);
  h.RunWorker();
  h.DetachWorker();
  const CallId step = h.Step(seq);
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.StateOf(step) == (is_behind ? RequestState::kFailed : RequestState::kDone));
}

TEST_CASE("Gradient: a later batch that is invalid as it came spoils no earlier step", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  const CallId step = h.Step(2);
  h.Send(
      Submit{.tenant_id = "t",
             .owner_id = h.model,
             .seq_id = 3,
             .args = TrainArgs{},
             .invalid = ErrorInfo{absl::StatusCode::kInvalidArgument, "bad_token", "data", "no"}});
  const CallId spoiled = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->History(h.model) == History{"fb 1", "step 2 [1]", "clear"});
  CHECK(h.ErrorOf(spoiled)->message.find("forward_backward seq 3 failed") == 0);
}

TEST_CASE("Gradient: delivered failures are known after a restart", "[core]") {
  const bool delivered = GENERATE(true, false);
  ModelHarness h;
  h.worker->FailOnce(h.model, 1, {absl::StatusCode::kInvalidArgument, "x", "", "bad"});
  const CallId failed = h.Gradient(1);
  h.RunWorker();
  if (delivered) h.Post(Delivered{h.AnswerTo(failed).id, "t"});
  h.DetachWorker();
  const CallId step = h.Step(2);
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.StateOf(step) == (delivered ? RequestState::kDone : RequestState::kFailed));
}

TEST_CASE("Gradient: a failed forward does not spoil a step", "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 1, {absl::StatusCode::kInvalidArgument, "x", "", "bad"});
  h.Forward(1);
  const CallId step = h.Step(2);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Gradient: a step without gradient is a step", "[core]") {
  ModelHarness h;
  h.Step(1);
  h.RunWorker();
  CHECK(h.worker->History(h.model) == History{"step 1 []"});
}

TEST_CASE("Load: requests accepted behind a failed load fail with its reason", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.RunWorker();
  h.worker->FailOnce(h.model, 2, {absl::StatusCode::kInternal, "x", "", "disk"});
  const CallId load = h.SubmitArgs(h.model, OpClass::kTrain, 2, OperationKind::kLoadWeights,
                                   LoadArgs{.path = "tinker://" + h.model + "/weights/a"});
  const CallId behind = h.Gradient(3);
  h.RunWorker();
  CHECK(h.ErrorOf(behind)->code == "load_failed");
  const bool restarts = GENERATE(false, true);
  if (restarts) {
    h.RestartEngine();
    h.AttachWorker("p2");
    h.RunWorker();
  }
  const CallId far_behind = h.Gradient(4);
  h.RunWorker();
  CHECK(h.ErrorOf(far_behind)->message == "load_weights seq 2 failed: disk");
  h.Post(Delivered{h.AnswerTo(load).id, "t"});
  const CallId later = h.Gradient(5);
  h.RunWorker();
  CHECK(h.StateOf(later) == RequestState::kDone);
}

TEST_CASE("Create: dependents of a failed creation fail with its reason", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = session + ":train:0";
  h.worker->FailOnce(model, 0, {absl::StatusCode::kResourceExhausted, "x", "", "no memory"});
  h.CreateModel(session, 0);
  const CallId waiting = h.Gradient(model, 1);
  h.RunWorker();
  const CallId later = h.Gradient(model, 2);
  for (const CallId call : {waiting, later}) {
    CHECK(h.ErrorOf(call)->message.find("no memory") != std::string::npos);
  }
}

}  // namespace
}  // namespace lathe::engine
