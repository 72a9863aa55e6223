#include "services/engine/core/models/offload.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {
namespace {

// Passes session_timeout without a sign of life. The worker runs its commands meanwhile.
void FallSilent(CoreHarness& h) {
  h.Advance(601 * kSecond);
  for (int i = 0; i < 3; ++i) {
    h.RunWorker();
    h.Tick();
  }
}

struct Trainer : ModelHarness {
  using ModelHarness::ModelHarness;
  const ModelRow& Row() const { return store.models().at(model); }
};

TEST_CASE("Offload: a leader knows which drops the worker has not done yet", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  FallSilent(h);
  WorkerAttached hello = h.worker->Hello();  // the drop waits behind a long pass
  hello.models.push_back({h.model, 2, {}});
  h.RestartEngine();
  h.ReattachAs(hello);
  const auto drops = h.worker->Received<SendDropAdapter>();
  REQUIRE_FALSE(drops.empty());
  h.Gradient(3);  // the model is needed again
  h.RestartEngine();
  hello.running_request_ids = {drops.back().request_id};
  h.ReattachAs(hello);
  h.RunWorker();
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]"});
}

TEST_CASE("Offload: a silent client's model leaves its worker, and its next request brings it back",
          "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  const std::vector<std::string> weights = h.worker->Weights(h.model);
  FallSilent(h);
  CHECK_FALSE(h.worker->Holds(h.model));
  CHECK(h.Row().is_offloaded);
  CHECK(h.Row().state == ModelState::kReady);
  CHECK(h.store.sessions().at(h.session).state == SessionState::kActive);

  CHECK_FALSE(h.AnswerTo(SendHeartbeat(h, h.session)).session_finished);
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(h.model));  // a heartbeat does not need the model
  h.Gradient(3);
  const CallId step = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK_FALSE(h.Row().is_offloaded);
  REQUIRE(h.worker->Weights(h.model).size() == weights.size() + 1);
  CHECK(std::equal(weights.begin(), weights.end(), h.worker->Weights(h.model).begin()));
  CHECK(h.worker->Weights(h.model).back() == "step 4 [3]");
  REQUIRE(h.recoveries.size() == 1);
  CHECK(h.recoveries[0].outcome == RecordRecovery::Outcome::kResumed);
  CHECK(h.recoveries[0].num_replayed == 0);  // the snapshot sufficed
}

TEST_CASE(
    "Offload: the open gradient of a silent client is dropped, and its next step refused once",
    "[core]") {
  Trainer h;
  const bool engine_restarts = GENERATE(false, true);
  Step(h, h.model, 1);
  h.Gradient(3);
  h.Gradient(4);
  h.RunWorker();
  FallSilent(h);
  CHECK(h.Row().is_offloaded);
  CHECK(h.Row().dropped_window == "3,4");
  if (engine_restarts) Replace(h, /*engine_too=*/true);
  h.Gradient(5);
  const CallId refused = h.Step(6);
  h.Gradient(7);
  const CallId step = h.Step(8);
  h.RunWorker();
  REQUIRE(h.ErrorOf(refused));
  CHECK(h.ErrorOf(refused)->code == "incomplete_gradient");
  CHECK_THAT(h.ErrorOf(refused)->message, Catch::Contains("forward_backward seq 3 to 4"));
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 8 [7]"});
  CHECK(h.worker->num_refused_steps() == 0);
  CHECK(h.Row().dropped_window.empty());
}

TEST_CASE("Offload: a load after a dropped gradient needs nothing of it", "[core]") {
  Trainer h;
  h.Step(1);
  h.Save(2, {.name = "a"});
  h.Gradient(3);
  h.RunWorker();
  FallSilent(h);
  h.SubmitArgs(h.model, OpClass::kTrain, 4, OperationKind::kLoadWeights,
               LoadArgs{.path = "tinker://" + h.model + "/weights/a"});
  h.Gradient(5);
  const CallId step = h.Step(6);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Offload: queued work completes first", "[core]") {
  Trainer h;
  h.Gradient(1);
  const CallId step = h.Step(2);
  h.Advance(601 * kSecond);
  CHECK(h.worker->Received<SendDropAdapter>().empty());
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  FallSilent(h);
  CHECK(h.Row().is_offloaded);
  CHECK(h.Row().applied_seq == 2);
}

TEST_CASE("Offload: a model that is not on disk stays on its worker", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  h.worker->writes_to_disk = false;
  FallSilent(h);
  CHECK_FALSE(h.Row().is_offloaded);
  CHECK(h.worker->Holds(h.model));
  // A worker whose writes succeed replaces it.
  h.DetachWorker(/*process_gone=*/true);
  Replace(h);
  FallSilent(h);
  CHECK(h.Row().is_offloaded);
  CHECK_FALSE(h.worker->Holds(h.model));
}

TEST_CASE("Offload: a sign of life on the way keeps the model where it is", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  h.Advance(601 * kSecond);  // the write is under way
  REQUIRE(h.worker->Received<SendSnapshot>().size() == 1);
  SendHeartbeat(h, h.session);
  h.RunWorker();
  h.Tick();
  CHECK(h.worker->Holds(h.model));
  CHECK_FALSE(h.Row().is_offloaded);
}

TEST_CASE("Offload: unnamed sampler versions still answer, from the disk", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  FallSilent(h);
  REQUIRE(h.Row().is_offloaded);
  CHECK(h.worker->Received<SendDropVersion>().size() == 1);
  const CallId sample = h.Sample(sampler, 1);
  h.RunWorker();
  CHECK(h.StateOf(sample) == RequestState::kDone);
  CHECK(h.worker->VersionWeights(h.model + "@3") == Words{"step 2 [1]"});
  CHECK(h.Row().is_offloaded);  // sampling does not need the model
}

TEST_CASE("Offload: the worker that keeps an offloaded model is asked to drop it", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  h.Advance(601 * kSecond);
  h.RunWorker();
  h.DetachWorker();  // the drop command is lost
  h.Tick();
  REQUIRE(h.Row().is_offloaded);
  REQUIRE(h.worker->Holds(h.model));
  h.ReattachWorker();
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(h.model));
  const CallId step = h.Step(3);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Offload: a session whose client never comes back ends, with all it kept", "[core]") {
  CoreOptions options;
  options.session_kept = 3600 * kSecond;
  Trainer h(options);
  Step(h, h.model, 1);
  FallSilent(h);
  REQUIRE(h.store.snapshots().size() == 1);
  const std::string snapshot = h.store.snapshots().begin()->first;
  h.Advance(3600 * kSecond);
  CHECK(h.store.sessions().at(h.session).state == SessionState::kEnded);
  CHECK(h.store.sessions().at(h.session).finish_reason == "expired");
  CHECK(h.Row().state == ModelState::kUnloaded);
  CHECK(h.store.snapshots().empty());
  CHECK(h.deleted_dirs.count(snapshot) == 1);
  CHECK(h.AnswerTo(h.Step(3)).error->code == "session_finished");
}

TEST_CASE("Offload: time without a leader does not end an offloaded session", "[core]") {
  CoreOptions options;
  options.session_kept = 3600 * kSecond;
  Trainer h(options);
  Step(h, h.model, 1);
  FallSilent(h);
  h.now += 7200 * kSecond;
  Replace(h, /*engine_too=*/true);
  h.Tick();
  const CallId step = h.Step(3);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Offload: an offloaded model is unloaded without a worker", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  FallSilent(h);
  const CallId unload =
      h.SubmitArgs(h.model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
  CHECK(h.StateOf(unload) == RequestState::kDone);
  CHECK(h.Row().state == ModelState::kUnloaded);
  CHECK(h.store.snapshots().empty());
}

TEST_CASE("Offload: a model that is damaged on disk goes back to the snapshot before", "[core]") {
  Trainer h;
  Step(h, h.model, 1);
  Snapshot(h);
  Step(h, h.model, 3);
  FallSilent(h);
  h.disk.Damage(NewestSnapshot(h));
  const CallId step = h.Step(5);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]", "step 5 []"});
}

TEST_CASE("Offload: an idle model of a client that is there keeps its gradient", "[core]") {
  CoreOptions options;
  options.model_idle_timeout = 60 * kSecond;
  Trainer h(options);
  Step(h, h.model, 1);
  h.Gradient(3);
  h.RunWorker();
  for (int i = 0; i < 4; ++i) {
    h.Advance(61 * kSecond);
    SendHeartbeat(h, h.session);
    h.RunWorker();
  }
  CHECK(h.Row().is_offloaded);
  CHECK_FALSE(h.worker->Holds(h.model));
  const CallId step = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Offload: offloaded models do not count as adapters until they resume", "[core]") {
  Trainer h;
  QuotaRow quota;
  quota.tenant_id = "t";
  quota.adapters = 1;
  h.Post(SetQuota{++h.last_call, quota, "tenant", "key"});
  Step(h, h.model, 1);
  FallSilent(h);
  const std::string other = h.NewSession();
  h.NewModel(other);
  const CallId refused = h.Step(3);
  CHECK(h.ErrorOf(refused)->code == "adapter_quota");
  h.Post(FinishSession{++h.last_call, "t", other, "success", ""});
  h.RunWorker();
  const CallId step = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
}

TEST_CASE("Offload: the files of a sampler's checkpoint are not held for a client that is gone",
          "[core]") {
  Trainer h;
  const std::string path = "tinker://" + h.model + "/sampler_weights/a";
  h.Save(1, {.name = "a"}, OperationKind::kSaveWeightsForSampler);
  h.RunWorker();
  const std::string dir = h.store.checkpoints().at(path).dir;
  h.Sampler(h.session, 0, path);
  FallSilent(h);
  h.Post(DeleteCheckpoint{++h.last_call, "t", path, "key"});
  CHECK(h.deleted_dirs.count(dir) == 1);
  const CallId sample = h.Sample(h.session + ":sample:0", 1);
  CHECK(h.ErrorOf(sample)->code == "checkpoint_deleted");
  h.Post(FinishSession{++h.last_call, "t", h.session, "success", ""});
  h.RunWorker();
  CHECK(h.store.sessions().at(h.session).state == SessionState::kEnded);
}

}  // namespace
}  // namespace lathe::engine
