#include "services/engine/core/models/snapshots.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"

namespace lathe::engine {
namespace {

size_t NumSnapshots(const CoreHarness& h) { return h.worker->Received<SendSnapshot>().size(); }

TEST_CASE("Snapshots: a model that changed is written once in an interval", "[core]") {
  ModelHarness h;
  h.Advance(11 * kSecond);
  CHECK(NumSnapshots(h) == 0);  // the creation needs none
  Step(h, h.model, 1);
  h.Tick();
  REQUIRE(NumSnapshots(h) == 1);
  h.RunWorker();
  REQUIRE(h.store.snapshots().size() == 1);
  CHECK(h.store.snapshots().begin()->second.applied_seq == 2);
  h.Advance(20 * kSecond);
  CHECK(NumSnapshots(h) == 1);  // no change since the last one
  h.Gradient(3);
  h.RunWorker();
  h.Tick();
  CHECK(NumSnapshots(h) == 2);  // an open gradient is a change
  h.RunWorker();
  Step(h, h.model, 4);
  h.Advance(9 * kSecond);
  CHECK(NumSnapshots(h) == 2);
  h.Advance(2 * kSecond);
  CHECK(NumSnapshots(h) == 3);
}

TEST_CASE("Snapshots: the interval grows with what the group's snapshots cost", "[core]") {
  CoreOptions options;
  options.snapshot_interval = kSecond / 100;
  options.snapshot_share = 0.0001;  // two models of 1 ms give an interval of 20 s
  CoreHarness h(options);
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string a = h.NewModel(session, 0);
  const std::string b = h.NewModel(session, 1);
  for (const std::string& model : {a, b}) Step(h, model, 1);
  h.Advance(30 * kSecond);
  h.RunWorker();
  REQUIRE(NumSnapshots(h) == 2);
  for (const std::string& model : {a, b}) Step(h, model, 3);
  h.Advance(15 * kSecond);
  CHECK(NumSnapshots(h) == 2);
  h.Advance(10 * kSecond);
  h.RunWorker();
  CHECK(NumSnapshots(h) == 4);
}

TEST_CASE("Snapshots: one at a time is written, the longest waiting model first", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string a = h.NewModel(session, 0);
  h.Tick();
  const std::string b = h.NewModel(session, 1);
  for (const std::string& model : {b, a}) Step(h, model, 1);
  h.Advance(12 * kSecond);
  REQUIRE(NumSnapshots(h) == 1);
  CHECK(h.worker->Received<SendSnapshot>()[0].model_id == a);
  h.RunWorker();
  REQUIRE(NumSnapshots(h) == 2);
  CHECK(h.worker->Received<SendSnapshot>()[1].model_id == b);
}

TEST_CASE("Snapshots: bodies go when two snapshots have made them needless", "[core]") {
  ModelHarness h;
  for (int64_t seq = 1; seq <= 5; seq += 2) {
    Step(h, h.model, seq);
    h.Advance(11 * kSecond);
    h.RunWorker();
    const size_t num_snapshots = h.store.snapshots().size();
    CHECK(num_snapshots == (seq == 1 ? 1 : 2));
    // Bodies up to the older of the two snapshots: those of steps 2 and 4.
    CHECK(h.store.dropped_bodies().size() == static_cast<size_t>(seq / 2));
  }
  CHECK(h.store.models().at(h.model).log_from_seq == 4);
  CHECK(h.deleted_dirs.size() == 1);
}

TEST_CASE("Snapshots: bodies of failed requests and of forwards go at once", "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 2, {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
  h.Forward(1);
  h.Gradient(2);
  h.RunWorker();
  CHECK(h.store.dropped_bodies().size() == 2);
}

TEST_CASE("Snapshots: long logs are cut before their time", "[core]") {
  CoreOptions options;
  options.snapshot_log_bytes = 100;
  ModelHarness h(options);
  h.Train(h.model, 1, OperationKind::kForwardBackward, "", "t", 50);
  h.RunWorker();
  h.Tick();
  CHECK(NumSnapshots(h) == 1);
}

TEST_CASE("Snapshots: a failed one is tried again later, its files go", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.worker->writes_to_disk = false;
  h.Advance(11 * kSecond);
  h.RunWorker();
  REQUIRE(NumSnapshots(h) == 1);
  const std::string id = h.worker->Received<SendSnapshot>()[0].snapshot_id;
  WorkerSnapshotDone failed;
  failed.group = "g";
  failed.epoch = h.worker->epoch();
  failed.snapshot_id = id;
  failed.error = ErrorInfo{absl::StatusCode::kResourceExhausted, "disk_full", "", "disk full"};
  h.Post(failed);
  CHECK(h.deleted_dirs.count(id) == 1);
  CHECK(h.store.snapshots().empty());
  h.Advance(5 * kSecond);
  CHECK(NumSnapshots(h) == 1);
  h.Advance(6 * kSecond);
  CHECK(NumSnapshots(h) == 2);
}

TEST_CASE("Snapshots: one that no model needs any more is removed", "[core]") {
  ModelHarness h;
  Step(h, h.model, 1);
  h.Advance(11 * kSecond);
  const std::string id = h.worker->Received<SendSnapshot>()[0].snapshot_id;
  h.DetachWorker();
  h.RestartEngine();
  h.ReattachWorker();
  h.deleted_dirs.clear();
  h.RunWorker();  // the abandoned write completes
  CHECK(h.store.snapshots().count(id) == 0);
  CHECK(h.deleted_dirs.count(id) == 1);
}

TEST_CASE("Snapshots: everything of a model goes with it", "[core]") {
  const bool unloads = GENERATE(true, false);
  ModelHarness h;
  for (int64_t seq = 1; seq <= 5; seq += 2) {
    Step(h, h.model, seq);
    h.Advance(11 * kSecond);
    h.RunWorker();
  }
  if (unloads) {
    h.SubmitArgs(h.model, OpClass::kUnload, 0, OperationKind::kUnloadModel, UnloadArgs{});
    h.RunWorker();
  } else {
    h.Post(FinishSession{++h.last_call, "t", h.session, "success", ""});
  }
  CHECK(h.store.snapshots().empty());
  CHECK(h.deleted_dirs.size() == 3);
  CHECK(h.store.dropped_bodies().size() == 3);
}

TEST_CASE("Snapshots: a drain waits until what changed is written", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  h.Step(2);
  const CallId drain = ++h.last_call;
  h.Post(Drain{drain});
  CHECK(NumSnapshots(h) == 0);  // requests come first
  h.RunWorkerOnce();
  h.RunWorkerOnce();
  REQUIRE(NumSnapshots(h) == 1);
  CHECK(h.FindAnswer(drain) == nullptr);
  h.RunWorker();
  CHECK(h.FindAnswer(drain) != nullptr);
  CHECK(h.store.snapshots().size() == 1);
}

}  // namespace
}  // namespace lathe::engine
