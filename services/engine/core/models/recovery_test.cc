#include "services/engine/core/models/recovery.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {
namespace {

using Outcome = RecordRecovery::Outcome;

TEST_CASE("Recovery: without a snapshot everything runs again", "[core]") {
  const bool engine_too = GENERATE(false, true);
  ModelHarness h;
  Step(h, h.model, 1);
  h.Gradient(3);
  h.RunWorker();
  Replace(h, engine_too);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
  const CallId step = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
  REQUIRE(h.recoveries.size() == 1);
  CHECK(h.recoveries[0].outcome == Outcome::kRecovered);
  CHECK(h.worker->num_refused_steps() == 0);
}

TEST_CASE("Recovery: only operations after the snapshot run again", "[core]") {
  const bool engine_too = GENERATE(false, true);
  ModelHarness h;
  for (int64_t seq = 1; seq <= 5; seq += 2) {
    Step(h, h.model, seq);
    Snapshot(h);
  }
  Step(h, h.model, 7);
  Replace(h, engine_too);
  CHECK(h.worker->History(h.model) == Words{"fb 7", "step 8 [7]"});
  CHECK(h.worker->Weights(h.model) ==
        Words{"step 2 [1]", "step 4 [3]", "step 6 [5]", "step 8 [7]"});
}

TEST_CASE("Recovery: an open gradient is continued, not added twice", "[core]") {
  const bool engine_too = GENERATE(false, true);
  ModelHarness h;
  h.Gradient(1);
  h.RunWorker();
  Snapshot(h);
  h.Gradient(2);
  h.RunWorker();
  Replace(h, engine_too);
  CHECK(h.worker->History(h.model) == Words{"fb 2"});
  h.Step(3);
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 3 [1,2]"});
}

TEST_CASE("Recovery: a gradient that was dropped stays dropped", "[core]") {
  const bool engine_too = GENERATE(false, true);
  ModelHarness h;
  h.Gradient(1);
  h.RunWorker();
  Snapshot(h);
  h.worker->FailOnce(h.model, 2, {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
  h.Gradient(2);
  h.Step(3);  // refused: its caller does not know of the failure yet
  h.RunWorker();
  Step(h, h.model, 4);
  h.Gradient(6);
  h.RunWorker();
  Replace(h, engine_too);
  CHECK(h.worker->History(h.model) == Words{"clear", "fb 4", "step 5 [4]", "fb 6"});
}

TEST_CASE("Recovery: requests that ran when the worker died run after it", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const CallId gradient = h.Gradient(3);
  const CallId step = h.Step(4);
  h.worker->RunOne();  // the report is lost
  Replace(h);
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Recovery: results that were given are not given again", "[core]") {
  ModelHarness h;
  const CallId gradient = h.Gradient(1);
  h.RunWorker();
  const auto results = h.result_of;
  const size_t before = h.actions.size();
  Replace(h);
  CHECK(h.result_of == results);
  size_t compared = 0;
  for (size_t i = before; i < h.actions.size(); ++i) {
    const auto* const compare = std::get_if<CompareReplay>(&h.actions[i]);
    if (compare != nullptr && compare->request_id == h.AnswerTo(gradient).id) ++compared;
  }
  CHECK(compared == 1);
}

TEST_CASE("Recovery: a damaged snapshot gives way to the one before, and it is said", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  Snapshot(h);
  Step(h, h.model, 3);
  Snapshot(h);
  const std::string newest = NewestSnapshot(h);
  h.disk.Damage(newest);
  Replace(h);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
  REQUIRE(h.recoveries.size() == 2);
  CHECK(h.recoveries[0].outcome == Outcome::kFellBack);
  CHECK(h.recoveries[0].detail == "snapshot " + newest + ": " + newest + " is damaged");
}

TEST_CASE("Recovery: without any good start the model is lost, and says why", "[core]") {
  ModelHarness h;
  for (int64_t seq = 1; seq <= 3; seq += 2) {
    Step(h, h.model, seq);
    Snapshot(h);
    h.disk.Damage(NewestSnapshot(h));
  }
  const CallId waiting = h.Gradient(5);
  Replace(h);
  REQUIRE(h.Done(waiting));
  CHECK(h.ErrorOf(waiting)->code == "model_lost");
  CHECK_THAT(h.ErrorOf(waiting)->message, Catch::Contains("is damaged"));
  CHECK(h.store.models().at(h.model).state == ModelState::kLost);
  CHECK(h.ErrorOf(h.Step(6))->code == "model_lost");
}

TEST_CASE("Recovery: a model is lost rather than rebuilt without an operation whose row is gone",
          "[core]") {
  ModelHarness h;
  h.worker->writes_to_disk = false;
  Step(h, h.model, 1);
  h.Gradient(3);
  const CallId gone = h.Step(4);
  h.RunWorker();
  Step(h, h.model, 5);
  h.store.LoseRequest(h.AnswerTo(gone).id);
  Replace(h, /*engine_too=*/true);
  CHECK(h.store.models().at(h.model).state == ModelState::kLost);
  CHECK_THAT(h.store.models().at(h.model).state_reason,
             Catch::Contains("operation seq 4 is not kept any more"));
}

TEST_CASE("Recovery: a load brings a lost model back, and is where it starts then", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  for (int64_t seq = 2; seq <= 4; seq += 2) {
    Step(h, h.model, seq);
    Snapshot(h);
    h.disk.Damage(NewestSnapshot(h));
  }
  Replace(h);
  REQUIRE(h.store.models().at(h.model).state == ModelState::kLost);
  const CallId load = h.SubmitArgs(h.model, OpClass::kTrain, 6, OperationKind::kLoadWeights,
                                   LoadArgs{.path = "tinker://" + h.model + "/weights/a"});
  h.Gradient(7);
  h.Step(8);
  h.RunWorker();
  CHECK(h.StateOf(load) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 8 [7]"});
  Replace(h, /*engine_too=*/true);
  CHECK(h.worker->Weights(h.model) == Words{"step 8 [7]"});
}

TEST_CASE("Recovery: a load runs from the files it read, deleted or not", "[core]") {
  const bool engine_too = GENERATE(false, true);
  ModelHarness h;
  Step(h, h.model, 1);
  h.Save(3, {.name = "a"});
  h.RunWorker();
  Step(h, h.model, 4);
  const std::string path = "tinker://" + h.model + "/weights/a";
  h.SubmitArgs(h.model, OpClass::kTrain, 6, OperationKind::kLoadWeights, LoadArgs{.path = path});
  h.RunWorker();
  h.Post(DeleteCheckpoint{++h.last_call, "t", path});
  CHECK(h.deleted_dirs.empty());
  Step(h, h.model, 7);
  h.worker->writes_to_disk = false;
  Replace(h, engine_too);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 8 [7]"});
  for (int64_t seq = 9; seq <= 11; seq += 2) {
    Step(h, h.model, seq);
    Snapshot(h);
  }
  CHECK(h.deleted_dirs.size() == 1);  // later snapshots replaced this start
}

TEST_CASE("Recovery: a model created from a checkpoint starts there", "[core]") {
  const bool engine_too = GENERATE(false, true);
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string first = h.NewModel(session);
  Step(h, first, 1);
  h.Save(first, 3, {.name = "a"});
  h.RunWorker();
  const std::string path = "tinker://" + first + "/weights/a";
  h.SubmitArgs(session, OpClass::kModel, 1, OperationKind::kLoadWeights,
               LoadArgs{.path = path, .creates_model = true, .base_model = "base"});
  h.RunWorker();
  const std::string second = session + ":train:1";
  h.worker->writes_to_disk = false;
  h.Post(DeleteCheckpoint{++h.last_call, "t", path});
  Step(h, second, 1);
  Replace(h, engine_too);
  CHECK(h.worker->Weights(second) == Words{"step 2 [1]", "step 2 [1]"});
}

TEST_CASE("Recovery: a worker that has another state is given the right one", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.DetachWorker();
  WorkerAttached hello = h.worker->Hello();
  hello.models[0].applied_seq = 0;
  h.ReattachAs(hello);
  h.RunWorker();
  CHECK(h.recoveries.size() == 1);
  Step(h, h.model, 3);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Recovery: a worker that dies on the way is followed by another", "[core]") {
  ModelHarness h;
  for (int64_t seq = 1; seq <= 9; seq += 2) Step(h, h.model, seq);
  const CallId waiting = h.Gradient(11);
  for (int i = 0; i < 3; ++i) {
    h.AttachWorker("cut" + std::to_string(i));
    for (int done = 0; done <= 2 * i; ++done) h.RunWorkerOnce();
  }
  CHECK_FALSE(h.Done(waiting));
  Replace(h);
  for (int i = 0; i < 5; ++i) {
    h.Tick();
    h.RunWorker();
  }
  CHECK(h.StateOf(waiting) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model).size() == 5);
}

TEST_CASE("Recovery: what may end the worker runs alone, later and later", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string a = h.NewModel(session, 0);
  const std::string b = h.NewModel(session, 1);
  for (const std::string& model : {a, b}) Step(h, model, 1);
  for (int i = 0; i < 3; ++i) h.AttachWorker("cut" + std::to_string(i));
  h.AttachWorker("last");
  CHECK(h.worker->Received<SendCreateAdapter>().size() <= 1);
  for (int i = 0; i < 10; ++i) {
    h.Tick();
    h.RunWorker();
  }
  for (const std::string& model : {a, b}) CHECK(h.worker->Weights(model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: a failure that a retry may avoid does not use a start up", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  h.worker->FailOnce(h.model, 0, {absl::StatusCode::kResourceExhausted, "no_room", "", "no room"});
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(h.model));
  CHECK(h.recoveries.empty());
  h.Advance(2 * kSecond);
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: a worker without room for a model is tried for as long as it takes",
          "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  for (int i = 0; i < 40 && !h.worker->Holds(h.model); ++i) {
    if (i < 20) h.worker->FailOnce(h.model, 0, {absl::StatusCode::kResourceExhausted, "", "", ""});
    h.Advance(10 * kSecond);
    h.RunWorker();
    CHECK((i >= 20 || !h.worker->Holds(h.model)));
  }
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

// Fails the start of the model's recovery. Returns the seconds until it is tried again.
int64_t FailStart(ModelHarness& h, absl::StatusCode status) {
  SendHeartbeat(h, h.session);
  h.worker->FailOnce(h.model, 0, {status, "", "", "it failed"});
  h.RunWorker();
  int64_t seconds = 0;
  for (; !h.worker->HasWork() && seconds < 100; ++seconds) h.Advance(kSecond);
  return seconds;
}

TEST_CASE("Recovery: an object store may be away for as long as it takes", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  h.Gradient(3);
  int64_t longest = 0;
  for (int i = 0; i < 100; ++i) {
    longest = std::max(longest, FailStart(h, absl::StatusCode::kUnavailable));
  }
  CHECK(longest >= 20);  // the store has a rest
  CHECK(longest <= 40);  // and is asked soon after it is back
  CHECK(h.recoveries.empty());
  h.RunWorker();
  h.Gradient(4);  // a model without requests has no notices
  h.Tick();
  CHECK(h.model_states.at(h.model).reason.empty());
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: an error is the reason only while another try is to come", "[core]") {
  const bool worker_is_lost = GENERATE(false, true);
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  h.Gradient(3);
  for (int i = 0; i < 5; ++i) FailStart(h, absl::StatusCode::kUnavailable);  // pauses grow
  h.worker->FailOnce(h.model, 0, {absl::StatusCode::kUnavailable, "", "", "it failed"});
  h.RunWorker();
  h.Tick();
  CHECK_THAT(h.model_states.at(h.model).reason, Catch::EndsWith("another try: it failed"));
  if (worker_is_lost) {
    h.DetachWorker(/*process_gone=*/true);
  } else {
    h.Advance(31 * kSecond);
    REQUIRE(h.worker->HasWork());  // the next try runs
  }
  h.Tick();
  CHECK_THAT(h.model_states.at(h.model).reason, !Catch::Contains("it failed"));
}

TEST_CASE("Recovery: a start that cannot be read again and again gives way to the next", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  Snapshot(h);
  h.AttachWorker("p2");
  // An outage in between does not speak for the start.
  for (int i = 0; i < 20 && h.recoveries.empty(); ++i) {
    FailStart(h, i % 3 == 1 ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal);
  }
  REQUIRE_FALSE(h.recoveries.empty());
  CHECK(h.recoveries[0].outcome == Outcome::kFellBack);
  CHECK_THAT(h.recoveries[0].detail, Catch::Contains("it failed"));
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: results of a state that is being replaced do not count", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const CallId gradient = h.Gradient(3);
  h.worker->RunOne();  // the report is not delivered yet
  h.DetachWorker();
  WorkerAttached hello = h.worker->Hello();
  hello.models[0].applied_seq = 0;
  h.ReattachAs(hello);
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  h.Step(4);
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
  CHECK(h.worker->num_refused_steps() == 0);
}

TEST_CASE("Recovery: one whose command was lost with the stream begins anew", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  h.worker->ForgetQueue();  // the commands are lost
  h.DetachWorker();
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: a body that the store cannot give yet begins it again", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2");
  for (int i = 0; i < 2; ++i) h.RunWorkerOnce();  // creates the adapter; a gradient is queued
  const auto batches = h.worker->Received<SendTrainBatch>();
  REQUIRE(batches.size() == 1);
  h.worker->ForgetQueue();
  h.Post(BodyUnavailable{"g", h.worker->epoch(), batches[0].items[0].request_id});
  h.Tick();
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
  CHECK(h.recoveries.size() == 1);
}

TEST_CASE("Recovery: one of an earlier leader that still runs is begun anew", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.RestartEngine();
  WorkerAttached hello = h.worker->Hello();  // its state is right, but a command will change it
  hello.running_request_ids.push_back("replay-1-1:" + h.model + ":create");
  h.ReattachAs(hello);
  h.RunWorker();
  CHECK(h.recoveries.size() == 1);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: an engine that restarts in the midst of one begins it anew", "[core]") {
  ModelHarness h;
  for (int64_t seq = 1; seq <= 5; seq += 2) Step(h, h.model, seq);
  h.AttachWorker("p2");
  for (int i = 0; i < 3; ++i) h.RunWorkerOnce();
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  Step(h, h.model, 7);
  CHECK(h.worker->Weights(h.model).size() == 4);
  CHECK(h.worker->num_refused_steps() == 0);
}

TEST_CASE("Recovery: a model waits for its base model to be served again", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.AttachWorker("p2", /*ready=*/true, "other");
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(h.model));
  CHECK(h.ErrorOf(h.Gradient(3))->code == "unknown_base_model");
  h.AttachWorker("p3");
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: a step that finds another state on its worker runs on the right one",
          "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.Gradient(3);
  h.RunWorker();
  h.worker->LoseGradient(h.model);
  const CallId step = h.Step(4);
  h.RunWorker();
  CHECK_FALSE(h.Done(step));
  h.Tick();
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Recovery: a step that is refused whatever is rebuilt fails", "[core]") {
  ModelHarness h;
  const CallId step = h.Step(1);
  for (int i = 0; i < 4; ++i) {
    CHECK_FALSE(h.Done(step));
    h.worker->FailOnce(h.model, 1, {absl::StatusCode::kInvalidArgument, "state_differs", "", "no"});
    h.RunWorker();
    h.Tick();
    h.RunWorkerOnce();
    h.RunWorkerOnce();
  }
  CHECK(h.StateOf(step) == RequestState::kFailed);
}

}  // namespace
}  // namespace lathe::engine
