#include "services/engine/core/models/placement.h"

#include <catch2/catch.hpp>
#include <string>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"
#include "services/engine/core/testing/two_groups.h"

namespace lathe::engine {
namespace {

TEST_CASE("Placement: models spread over the groups of their base model", "[core]") {
  Groups t;
  for (int64_t i = 0; i < 4; ++i) t.h.NewModel(t.session, i);
  int64_t num_here = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const std::string model = t.session + ":train:" + std::to_string(i);
    num_here += t.h.worker->Holds(model) ? 1 : 0;
    CHECK(t.h.worker->Holds(model) != t.other->Holds(model));
  }
  CHECK(num_here == 2);
}

TEST_CASE("Placement: idle models weigh little", "[core]") {
  Groups t;
  for (int64_t i = 0; i < 4; ++i) t.h.NewModel(t.session, i);
  REQUIRE(t.GroupOf(t.session + ":train:3") == "h");
  t.h.Advance(61 * kSecond);
  Step(t.h, t.session + ":train:3", 1);
  for (int64_t i = 4; i < 7; ++i) t.h.NewModel(t.session, i);
  CHECK(t.GroupOf(t.session + ":train:4") == "g");
  CHECK(t.GroupOf(t.session + ":train:5") == "h");
  CHECK(t.GroupOf(t.session + ":train:6") == "g");
}

TEST_CASE("Placement: a group of more ranks takes more models", "[core]") {
  CoreHarness h;
  h.mesh.dp = 1;
  h.AttachWorker();
  WorkerAttached hello = h.worker->Hello();
  hello.group = "h";
  hello.process_id = "q0";
  hello.mesh.dp = 2;
  h.Post(hello);
  hello.rank = 1;
  hello.process_id = "q1";
  h.Post(hello);
  const std::string session = h.NewSession();
  for (int64_t i = 0; i < 6; ++i) h.CreateModel(session, i);
  int64_t num_on_g = 0;
  for (const auto& [id, row] : h.store.models()) num_on_g += row.group == "g" ? 1 : 0;
  CHECK(num_on_g == 2);
}

TEST_CASE("Placement: a new model goes to a group that is there", "[core]") {
  Groups t;
  t.h.DetachWorker(/*process_gone=*/true);
  const std::string first = t.h.NewModel(t.session, 0);
  const std::string second = t.h.NewModel(t.session, 1);
  CHECK(t.other->Holds(first));
  CHECK(t.other->Holds(second));
}

TEST_CASE("Placement: the death of a group's worker is nothing to another's models", "[core]") {
  Groups t;
  const std::string first = t.h.NewModel(t.session, 0);
  const std::string second = t.h.NewModel(t.session, 1);
  REQUIRE(t.other->Holds(second));
  t.h.DetachWorker(/*process_gone=*/true);
  Step(t.h, second, 1);
  CHECK(t.other->Weights(second) == Words{"step 2 [1]"});
  t.h.AttachWorker("p2");
  t.h.RunWorker();
  CHECK(t.h.worker->Holds(first));
  CHECK(t.other->Weights(second) == Words{"step 2 [1]"});
}

TEST_CASE("Placement: models of a group that stays lost are rebuilt in another", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  REQUIRE(t.GroupOf(model) == "g");
  Step(t.h, model, 1);
  Snapshot(t.h);
  const CallId before = t.h.Gradient(model, 3);
  t.h.RunWorker();
  const CallId lost = t.h.Gradient(model, 4);  // the worker never reports its result
  const CallId step = t.h.Step(model, 5);
  t.LoseFirst(kLost);
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.h.Done(before));
  CHECK(t.h.Done(lost));
  CHECK(t.h.ErrorOf(step) == std::nullopt);
  CHECK(t.h.notified_groups.at(t.h.AnswerTo(step).id) == "h");
  CHECK(t.other->Weights(model) == Words{"step 2 [1]", "step 5 [3,4]"});
}

TEST_CASE("Placement: a group that comes back in time keeps its models", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.LoseFirst(kLost - 10 * kSecond);
  t.h.AttachWorker("p2");
  t.h.RunWorker();
  t.h.Advance(kLost);
  CHECK(t.GroupOf(model) == "g");
  CHECK(t.h.worker->Weights(model) == Words{"step 2 [1]"});
  CHECK_FALSE(t.other->Holds(model));
}

TEST_CASE("Placement: a group that comes back late is given nothing of its models", "[core]") {
  const bool engine_too = GENERATE(false, true);
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.LoseFirst(kLost);
  REQUIRE(t.other->Holds(model));
  if (engine_too) {
    t.h.RestartEngine();
    t.h.ReattachOther("h");
  }
  t.h.AttachWorker("p2");
  Step(t.h, model, 3);
  CHECK_FALSE(t.h.worker->Holds(model));
  CHECK(t.other->Weights(model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Placement: without another group models wait for theirs", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  h.AttachOther("h", GroupRole::kSample);
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session, 0);
  Step(h, model, 1);
  h.DetachWorker(/*process_gone=*/true);
  const CallId waits = h.Gradient(model, 3);
  h.Advance(10 * kLost);
  h.RunWorker();
  CHECK_FALSE(h.Done(waits));
  Replace(h);
  CHECK(h.Done(waits));
  CHECK(h.worker->Weights(model) == Words{"step 2 [1]"});
}

TEST_CASE("Placement: a model that was being created is created in another group", "[core]") {
  Groups t;
  const CallId call = t.h.CreateModel(t.session, 0);
  t.LoseFirst(kLost);
  CHECK(t.h.ErrorOf(call) == std::nullopt);
  CHECK(t.other->Holds(t.session + ":train:0"));
}

TEST_CASE("Placement: samples that found no usable group take the first that is", "[core]") {
  Groups t;
  t.h.Sampler(t.session, 0, "");
  t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
  t.h.others.clear();
  t.h.DetachWorker(/*process_gone=*/true);
  std::vector<CallId> samples;
  for (int64_t seq = 0; seq < 4; ++seq) {
    samples.push_back(SampleOf(t.h, t.session + ":sample:0", seq));
  }
  const bool first_comes = GENERATE(true, false);
  if (first_comes) {
    t.h.AttachWorker("p2");
  } else {
    t.h.AttachOther("h");
  }
  t.h.RunWorker();
  for (const CallId call : samples) CHECK(t.h.Done(call));
}

TEST_CASE("Placement: an unnamed version is made again where its model has gone", "[core]") {
  const bool is_on_disk = GENERATE(false, true);
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  const std::string sampler = Publish(t.h, model, 3, /*sampler_seq=*/0);
  Step(t.h, model, 4);
  if (is_on_disk) Snapshot(t.h);
  t.h.DetachWorker(/*process_gone=*/true);
  const CallId sample = SampleOf(t.h, sampler, 0);
  CHECK(t.h.Done(sample) == is_on_disk);  // any group can read the file
  t.h.Advance(kLost);
  t.h.RunWorker();
  CHECK(t.h.ErrorOf(sample) == std::nullopt);
  CHECK(t.h.ErrorOf(SampleOf(t.h, sampler, 1)) == std::nullopt);
  const std::string version = t.other->Received<SendSample>().back().version_id;
  CHECK(t.other->VersionWeights(version) == Words{"step 2 [1]"});
}

TEST_CASE("Placement: roles", "[core]") {
  Groups t(GroupRole::kTrain, GroupRole::kSample);
  const std::string model = t.h.NewModel(t.session, 0);
  t.h.NewModel(t.session, 1);
  CHECK(t.other->Received<SendCreateAdapter>().empty());
  t.h.Sampler(t.session, 0, "");
  CHECK(t.h.ErrorOf(SampleOf(t.h, t.session + ":sample:0", 0)) == std::nullopt);
  CHECK(t.h.worker->Received<SendSample>().empty());

  SECTION("a version is written at once, and sampled where that is done") {
    Step(t.h, model, 1);
    const std::string sampler = Publish(t.h, model, 3, /*sampler_seq=*/1);
    CHECK(t.h.ErrorOf(SampleOf(t.h, sampler, 0)) == std::nullopt);
    CHECK(t.h.worker->Received<SendSample>().empty());
    const std::string version = t.other->Received<SendSample>().back().version_id;
    CHECK(t.other->VersionWeights(version) == Words{"step 2 [1]"});
  }
  SECTION("samples wait until it is written") {
    t.h.worker->writes_to_disk = false;
    Step(t.h, model, 1);
    const std::string sampler = Publish(t.h, model, 3, /*sampler_seq=*/1);
    CHECK_FALSE(t.h.Done(SampleOf(t.h, sampler, 0)));
  }
  SECTION("an inflight version is loaded again when it has moved on") {
    Step(t.h, model, 1);
    Publish(t.h, model, 3, /*sampler_seq=*/1, /*inflight=*/true);
    SampleOf(t.h, t.session + ":sample:1", 0);
    Step(t.h, model, 4);
    Publish(t.h, model, 6, /*sampler_seq=*/2, /*inflight=*/true);
    SampleOf(t.h, t.session + ":sample:1", 1);
    const std::string version = t.other->Received<SendSample>().back().version_id;
    CHECK(t.other->VersionWeights(version) == Words{"step 2 [1]", "step 5 [4]"});
    CHECK(t.other->Received<SendLoadVersion>().size() == 2);
  }
}

TEST_CASE("Placement: work that no group does waits for a group that does it", "[core]") {
  CoreHarness h;
  h.role = GroupRole::kSample;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const CallId call = h.CreateModel(session, 0);
  h.RunWorker();
  CHECK(h.AnswerTo(call).group.empty());
  CHECK_FALSE(h.Done(call));
  REQUIRE(h.queue_states.count("") == 1);
  CHECK(h.queue_states.at("").paused);
  CHECK(h.queue_states.at("").reason ==
        "waiting for a worker group of the base model with the required role");
  CHECK(h.notified_groups.empty());
  h.AttachOther("h", GroupRole::kTrain);
  CHECK(h.notified_groups.at(h.AnswerTo(call).id) == "h");  // the reason to wait is now that of "h"
  h.Tick();
  h.RunWorker();
  CHECK(h.ErrorOf(call) == std::nullopt);
}

TEST_CASE("Placement: a sample whose group came back to train waits for one that samples",
          "[core]") {
  SamplerHarness h;
  h.DetachWorker(/*process_gone=*/true);
  const CallId call = SampleOf(h, h.sampler, 1);
  h.role = GroupRole::kTrain;
  h.AttachWorker("p2");
  h.RunWorker();
  CHECK_FALSE(h.Done(call));
  h.AttachOther("h", GroupRole::kSample);
  h.Tick();
  h.RunWorker();
  CHECK(h.Done(call));
  CHECK(h.ErrorOf(call) == std::nullopt);
}

TEST_CASE("Placement: a new leader sends no sample to a group that turns out to train", "[core]") {
  Groups t(GroupRole::kTrain, GroupRole::kSample);
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  const std::string sampler = Publish(t.h, model, 3, /*sampler_seq=*/1);
  SampleOf(t.h, sampler, 0);  // writes the version, and loads it
  const CallId call = t.h.Sample(sampler, 1);
  t.h.Tick();
  REQUIRE(t.other->Received<SendSample>().size() == 2);
  REQUIRE(t.h.StateOf(call) == RequestState::kDispatched);
  t.h.RestartEngine();
  // The first group to attach has all samples placed, when no role of another group is known.
  t.h.AttachOther("k", GroupRole::kTrain);
  t.h.ReattachWorker();
  t.h.Tick();
  CHECK(t.h.worker->Received<SendSample>().empty());
  t.h.ReattachOther("h");
  t.h.RunWorker();
  CHECK(t.h.Done(call));
  CHECK(t.h.ErrorOf(call) == std::nullopt);
}

TEST_CASE("Placement: models leave a group that comes back with another role", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.h.role = GroupRole::kSample;
  t.h.AttachWorker("p2");
  t.h.Tick();
  t.h.RunWorker();
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.other->Weights(model) == Words{"step 2 [1]"});
}

}  // namespace
}  // namespace lathe::engine
