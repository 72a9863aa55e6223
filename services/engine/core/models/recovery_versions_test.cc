// Recovery of unnamed sampler versions after the loss of their worker.
#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {
namespace {

TEST_CASE("Recovery: unnamed versions are as they were", "[core]") {
  const bool engine_too = GENERATE(false, true);
  const bool snapshot_before = GENERATE(false, true);
  const bool snapshot_after = GENERATE(false, true);
  ModelHarness h;
  Step(h, h.model, 1);
  if (snapshot_before) Snapshot(h);
  const std::string sampler = Publish(h, h.model, 3, 0);
  const std::string version = h.store.samplers().at(sampler).version_id;
  Step(h, h.model, 4);
  if (snapshot_after) Snapshot(h);
  Step(h, h.model, 6);
  CHECK(h.store.versions().size() == (snapshot_after ? 1 : 0));
  h.DetachWorker();
  const CallId waiting = h.Sample(sampler, 1);
  Replace(h, engine_too);
  CHECK(h.StateOf(waiting) == RequestState::kDone);
  CHECK(h.worker->VersionWeights(version) == Words{"step 2 [1]"});
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 5 [4]", "step 7 [6]"});
}

TEST_CASE("Recovery: a version from before a load is made again from the beginning", "[core]") {
  const bool engine_too = GENERATE(false, true);
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  h.worker->writes_to_disk = false;
  h.Save(model, 1, {.name = "a"});
  h.RunWorker();
  Step(h, model, 2);
  const std::string sampler = Publish(h, model, 4, 0);
  const std::string version = h.store.samplers().at(sampler).version_id;
  const std::string path = "tinker://" + model + "/weights/a";
  h.SubmitArgs(model, OpClass::kTrain, 5, OperationKind::kLoadWeights, LoadArgs{.path = path});
  h.RunWorker();
  Step(h, model, 6);
  Replace(h, engine_too);
  CHECK(h.worker->VersionWeights(version) == Words{"step 3 [2]"});
  CHECK(h.worker->Weights(model) == Words{"step 7 [6]"});
}

// Makes step 2, version 3, then steps and snapshots. The save of the version is never answered.
std::string VersionBeforeSnapshots(CoreHarness& h, const std::string& model) {
  Step(h, model, 1);
  const std::string sampler = Publish(h, model, 3, 0);
  for (int64_t seq = 4; seq <= 8; seq += 2) {
    Step(h, model, seq);
    h.Advance(11 * kSecond);
    for (EventBody& report : h.worker->TakeReports()) {
      if (!std::holds_alternative<WorkerVersionSaved>(report)) h.Post(std::move(report));
    }
    while (h.worker->HasWork()) {
      h.worker->RunOne();
      for (EventBody& report : h.worker->TakeReports()) h.Post(std::move(report));
    }
  }
  return h.store.samplers().at(sampler).version_id;
}

TEST_CASE("Recovery: operations that it will run stay in the log", "[core]") {
  ModelHarness h;
  const std::string version = VersionBeforeSnapshots(h, h.model);
  h.AttachWorker("p2");
  while (h.worker->Received<SendPublishVersion>().empty()) h.RunWorkerOnce();
  h.RunWorkerOnce();
  h.Advance(601 * kSecond);  // the session is silent, so the version is due
  REQUIRE(h.worker->Received<SendSaveVersion>().size() == 1);
  h.RunWorker();
  CHECK(h.worker->Weights(h.model).size() == 4);
  CHECK(h.store.versions().at(version).dir != "");
  CHECK_FALSE(h.store.dropped_bodies().empty());
}

TEST_CASE("Recovery: a snapshot is no start while a version before it is not on disk", "[core]") {
  ModelHarness h;
  const std::string version = VersionBeforeSnapshots(h, h.model);
  CHECK(h.store.snapshots().size() == 3);
  CHECK(h.store.dropped_bodies().empty());
  Replace(h);
  CHECK(h.worker->VersionWeights(version) == Words{"step 2 [1]"});
  CHECK(h.worker->Weights(h.model).size() == 4);
}

TEST_CASE("Recovery: samples go on when engine and worker died under them", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  const CallId sample = h.Sample(sampler, 1);
  CHECK(h.StateOf(sample) == RequestState::kDispatched);
  Replace(h, /*engine_too=*/true);
  CHECK(h.StateOf(sample) == RequestState::kDone);
}

TEST_CASE("Recovery: a version that was dropped does not come back", "[core]") {
  CoreOptions options;
  options.sampler_versions_bytes = 100;
  ModelHarness h(options);
  for (int64_t i = 0; i < 5; ++i) Publish(h, h.model, i + 1, i);
  Replace(h, /*engine_too=*/true);
  CHECK(h.worker->Received<SendPublishVersion>().size() == 4);
}

TEST_CASE("Recovery: a version that is dropped meanwhile does not stay at the worker", "[core]") {
  CoreOptions options;
  options.sampler_versions_bytes = 100;
  CoreHarness h(options);
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string slow = h.NewModel(session, 0);
  const std::string quick = h.NewModel(session, 1);
  for (int64_t seq = 1; seq <= 9; seq += 2) Step(h, slow, seq);
  const std::string dropped = Publish(h, slow, 11, 0);
  for (int64_t i = 1; i <= 3; ++i) Publish(h, quick, i, i);
  h.DetachWorker(/*process_gone=*/true);
  SaveArgs args;
  args.sampling_session_seq_id = 4;
  h.Save(quick, 4, args, OperationKind::kSaveWeightsForSampler);
  h.AttachWorker("p2");
  h.RunWorker();
  REQUIRE(h.store.samplers().at(dropped).version_dropped);
  CHECK(h.worker->Received<SendPublishVersion>().size() == 5);
  CHECK(h.worker->Hello().versions.size() == 4);
}

TEST_CASE("Recovery: the inflight version has the weights of its newest publication", "[core]") {
  const bool on_disk = GENERATE(false, true);
  ModelHarness h;
  Publish(h, h.model, 1, 0, /*inflight=*/true);
  Step(h, h.model, 2);
  Snapshot(h);
  const std::string sampler = Publish(h, h.model, 4, 1, /*inflight=*/true);
  const std::string version = h.store.samplers().at(sampler).version_id;
  Step(h, h.model, 5);
  if (on_disk) Snapshot(h);
  Replace(h);
  const CallId sample = h.Sample(sampler, 1);
  h.RunWorker();
  CHECK(h.StateOf(sample) == RequestState::kDone);
  CHECK(h.worker->VersionWeights(version) == Words{"step 3 [2]"});
  if (on_disk) CHECK(h.worker->Received<SendLoadVersion>().back().inflight_seq_id == 4);
}

TEST_CASE("Recovery: a version in a directory that an earlier leader named is written again",
          "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  const std::string version = h.store.samplers().at(sampler).version_id;
  Step(h, h.model, 4);
  h.Advance(11 * kSecond);  // the save is sent
  REQUIRE(h.worker->Received<SendSaveVersion>().size() == 1);
  const std::string dir = h.worker->Received<SendSaveVersion>().back().dir;
  h.worker->TakeReports();
  h.RestartEngine();
  h.ReattachWorker();
  h.Post(WorkerVersionSaved{.group = "g",
                            .epoch = h.worker->epoch(),
                            .version_id = version,
                            .dir = dir,
                            .error = std::nullopt,
                            .seq_id = 3});
  CHECK(h.store.versions().count(version) == 0);
  h.Advance(11 * kSecond);
  h.RunWorker();
  CHECK(h.store.versions().at(version).dir != dir);
}

TEST_CASE("Recovery: versions on disk serve before their model is back", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  Step(h, h.model, 4);
  Snapshot(h);
  h.AttachWorker("p2");
  h.Sample(sampler, 1);
  CHECK(h.worker->Received<SendSample>().size() == 1);
  CHECK_FALSE(h.worker->Holds(h.model));
}

TEST_CASE("Recovery: a version on disk goes with its samplers", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  Step(h, model, 1);
  Publish(h, model, 3, 0);
  Step(h, model, 4);
  Snapshot(h);
  REQUIRE(h.store.versions().size() == 1);
  const std::string dir = h.store.versions().begin()->second.dir;
  h.Post(FinishSession{++h.last_call, "t", session, "success", ""});
  CHECK(h.store.versions().empty());
  CHECK(h.deleted_dirs.count(dir) == 1);
}

// A version that is not on disk and that its worker has lost.
struct VersionLost {
  explicit VersionLost(CoreOptions options = {}) : h(options) {
    h.AttachWorker();
    h.worker->writes_to_disk = false;
    model = h.NewModel(h.NewSession());
    Step(h, model, 1);
    const std::string sampler = Publish(h, model, 3, 0);
    version = h.store.samplers().at(sampler).version_id;
  }
  void Lose() { h.Post(h.worker->LoseVersion(version)); }
  void RunAll() {
    for (int i = 0; i < 3; ++i) {
      h.Tick();
      h.RunWorker();
    }
  }
  size_t NumSent(int64_t seq) const {
    size_t num_sent = 0;
    for (const SendTrainBatch& batch : h.worker->Received<SendTrainBatch>()) {
      for (const SendTrainBatch::Item& item : batch.items) num_sent += item.seq_id == seq ? 1 : 0;
    }
    return num_sent;
  }

  CoreHarness h;
  std::string model;
  std::string version;
};

TEST_CASE("Recovery: a version its worker lost is made again while the model works", "[core]") {
  CoreOptions options;
  options.batch_tokens = 10;  // two gradients at the worker, others queued
  VersionLost t(options);
  std::vector<CallId> calls;
  for (int64_t seq = 4; seq <= 7; ++seq) calls.push_back(t.h.Gradient(t.model, seq));
  calls.push_back(t.h.Step(t.model, 8));
  t.Lose();
  t.RunAll();
  for (const CallId call : calls) CHECK(t.h.StateOf(call) == RequestState::kDone);
  CHECK(t.h.worker->VersionWeights(t.version) == Words{"step 2 [1]"});
  CHECK(t.h.worker->Weights(t.model) == Words{"step 2 [1]", "step 8 [4,5,6,7]"});
  CHECK(t.NumSent(4) == 2);  // it was at the worker
  CHECK(t.NumSent(7) == 1);  // it was still queued
  // The train window has its full room again.
  t.h.Gradient(t.model, 9);
  t.h.Gradient(t.model, 10);
  CHECK(t.NumSent(10) == 1);
}

TEST_CASE("Recovery: it does not wait for a quarantined request of its model, nor that for it",
          "[core]") {
  VersionLost t;
  const CallId quarantined = t.h.Gradient(t.model, 4);
  t.h.Post(WorkerStarted{"g", t.h.worker->epoch(), {t.h.AnswerTo(quarantined).id}});
  t.h.Post(WorkerDetached{"g", /*process_gone=*/true, LossCause::kCrashed, "signal 11"});
  t.h.AttachWorker("p2");
  t.h.worker->writes_to_disk = false;
  while (t.NumSent(4) == 0 && t.h.worker->HasWork()) t.h.RunWorkerOnce();
  REQUIRE(t.NumSent(4) == 1);
  t.Lose();
  t.RunAll();
  CHECK(t.h.StateOf(quarantined) == RequestState::kDone);
  CHECK(t.h.worker->VersionWeights(t.version) == Words{"step 2 [1]"});
}

TEST_CASE("Recovery: samples of a version that was lost while it was saved use the file",
          "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  const std::string version = h.store.samplers().at(sampler).version_id;
  h.Advance(11 * kSecond);
  REQUIRE(h.worker->Received<SendSaveVersion>().size() == 1);
  std::vector<EventBody> reports = h.worker->TakeReports();
  const CallId gradient = h.Gradient(4);  // the recovery waits for its answer
  h.Post(h.worker->LoseVersion(version));
  const CallId sample = h.Sample(sampler, 1);
  CHECK(h.worker->Received<SendSample>().empty());
  for (EventBody& report : reports) h.Post(std::move(report));
  REQUIRE_FALSE(h.store.versions().at(version).dir.empty());
  CHECK(h.worker->Received<SendSample>().size() == 1);
  h.RunWorker();
  h.Tick();
  h.RunWorker();
  CHECK(h.StateOf(sample) == RequestState::kDone);
  CHECK(h.StateOf(gradient) == RequestState::kDone);
}

TEST_CASE("Recovery: samples that wait for their turn wait for a version that is lost", "[core]") {
  CoreOptions options;
  options.max_inflight_sequences = 1;
  VersionLost t(options);
  const std::string sampler = t.h.store.samplers().begin()->first;
  const CallId first = t.h.Sample(sampler, 1);
  const CallId second = t.h.Sample(sampler, 2);
  // The first one runs already and keeps its weights.
  t.h.Post(WorkerVersionFailed{"g", t.h.worker->epoch(), t.version, {}});
  t.h.RunWorkerOnce();
  CHECK(t.h.StateOf(first) == RequestState::kDone);
  CHECK(t.h.worker->Received<SendSample>().size() == 1);
  t.RunAll();
  CHECK(t.h.worker->Received<SendSample>().size() == 2);
  CHECK(t.h.StateOf(second) == RequestState::kDone);
}

TEST_CASE("Recovery: an answer that was not acknowledged before it is not taken after it",
          "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  const std::string sampler = Publish(h, h.model, 3, 0);
  const std::string version = h.store.samplers().at(sampler).version_id;
  h.Gradient(4);
  h.RunWorker();
  h.Advance(11 * kSecond);
  std::vector<EventBody> saved = h.worker->TakeReports();
  h.RunWorker();
  REQUIRE(h.store.snapshots().size() == 1);
  const CallId step = h.Step(5);
  h.Post(h.worker->LoseVersion(version));
  for (EventBody& report : saved) h.Post(std::move(report));  // nothing is left to replay
  h.DetachWorker();
  const bool is_done_before = GENERATE(false, true);
  if (is_done_before) h.worker->RunOne();
  h.ReattachWorker();
  h.attached = false;  // later messages of the engine are lost
  for (EventBody& report : h.worker->TakeReports()) h.Post(std::move(report));
  while (h.worker->HasWork()) {
    h.worker->RunOne();
    for (EventBody& report : h.worker->TakeReports()) h.Post(std::move(report));
  }
  h.Tick();
  const bool engine_too = GENERATE(false, true);
  if (engine_too) {
    h.RestartEngine();
  } else {
    h.DetachWorker();
  }
  h.ReattachWorker();
  h.RunWorker();
  h.Tick();
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->Weights(h.model) == Words{"step 2 [1]", "step 5 [4]"});
}

}  // namespace
}  // namespace lathe::engine
