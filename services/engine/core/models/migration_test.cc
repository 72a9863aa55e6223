#include "services/engine/core/models/migration.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "services/engine/core/testing/core_harness.h"
#include "services/engine/core/testing/recovery_steps.h"
#include "services/engine/core/testing/two_groups.h"

namespace lathe::engine {
namespace {

// The error message of the answer; empty: accepted.
std::string Answered(const CoreHarness& h) {
  const Answer& answer = h.AnswerTo(h.last_call);
  return answer.error ? answer.error->message : "";
}

std::string MoveTo(CoreHarness& h, const std::string& model, const std::string& group) {
  h.Post(MoveModel{++h.last_call, model, group});
  return Answered(h);
}

std::string SetDraining(CoreHarness& h, const std::string& group, bool is_draining = true) {
  h.Post(DrainGroup{++h.last_call, group, is_draining});
  return Answered(h);
}

TEST_CASE("Migration: a model that lives goes with its state, and loses nothing on the way",
          "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  REQUIRE(t.GroupOf(model) == "g");
  Step(t.h, model, 1);
  t.h.Gradient(model, 3);
  t.h.RunWorker();
  REQUIRE(MoveTo(t.h, model, "h").empty());
  t.h.Tick();
  const CallId gradient = t.h.Gradient(model, 4);
  const CallId step = t.h.Step(model, 5);
  CHECK(t.GroupOf(model) == "g");
  t.h.Tick();
  CHECK(t.h.model_states.at(model).reason == "its model is being moved to another group");
  t.Pass();
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.h.ErrorOf(gradient) == std::nullopt);
  CHECK(t.h.ErrorOf(step) == std::nullopt);
  CHECK(t.h.worker->History(model) == Words{"fb 1", "step 2 [1]", "fb 3"});
  CHECK(t.other->History(model) == Words{"fb 4", "step 5 [3,4]"});  // no replay
  CHECK(t.other->Weights(model) == Words{"step 2 [1]", "step 5 [3,4]"});
  CHECK_FALSE(t.h.worker->Holds(model));
  CHECK(t.h.store.models().at(model).move_to.empty());
  Step(t.h, model, 6);
  CHECK(t.other->Weights(model).size() == 3);
  CHECK(t.h.model_states.at(model).reason.empty());
}

TEST_CASE("Migration: moves and drains are in the audit log, with their actor", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  t.h.Post(MoveModel{++t.h.last_call, model, "h", "tenant", "key"});
  t.h.Post(DrainGroup{++t.h.last_call, "g", /*is_draining=*/true, "tenant", "key"});
  t.h.Post(DrainGroup{++t.h.last_call, "h", /*is_draining=*/true, "tenant", "key"});
  const std::vector<AuditRow>& log = t.h.store.audit();
  REQUIRE(log.size() == 3);  // the second drain is refused
  CHECK(log[0].event == "model_move");
  CHECK(log[0].object == model);
  CHECK(log[0].tenant_id == t.h.store.models().at(model).tenant_id);
  CHECK(log[0].actor == "key");
  CHECK(log[0].details == Metadata{{"from", "g"}, {"to", "h"}});
  // The actor's tenant does not learn the model's id.
  CHECK(log[1].event == "group_take_model");
  CHECK(log[1].object == "h");
  CHECK(log[1].tenant_id == "tenant");
  CHECK(log[1].details == Metadata{{"from", "g"}});
  CHECK(log[2].event == "group_drain");
  CHECK(log[2].object == "g");
  CHECK(log[2].tenant_id == "tenant");
  CHECK(log[2].actor == "key");
}

TEST_CASE("Migration: running requests end first", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  const CallId gradient = t.h.Gradient(model, 1);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  for (int i = 0; i < 5; ++i) t.h.Tick();
  CHECK(t.GroupOf(model) == "g");
  t.Pass();
  CHECK(t.h.ErrorOf(gradient) == std::nullopt);
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.other->Received<SendTrainBatch>().empty());
}

TEST_CASE("Migration: a new leader goes on with it", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  const bool has_left = GENERATE(false, true);
  if (has_left) {
    // Ticks until the row has the new group. The commands sent then are lost.
    for (int i = 0; i < 3; ++i) {
      t.h.Tick();
      if (t.GroupOf(model) == "h") break;
      t.h.RunWorker();
    }
    REQUIRE(t.GroupOf(model) == "h");
    t.other->ForgetQueue();
    t.h.worker->ForgetQueue();
  }
  t.h.RestartEngine();
  t.h.ReattachWorker();
  t.h.ReattachOther("h");
  t.Pass();
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.other->Weights(model) == Words{"step 2 [1]"});
  CHECK_FALSE(t.h.worker->Holds(model));
}

TEST_CASE("Migration: an unnamed version is sampled where it was and where its model is",
          "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  const std::string sampler = Publish(t.h, model, 3, /*sampler_seq=*/0);
  Step(t.h, model, 4);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  t.Pass();
  REQUIRE(t.GroupOf(model) == "h");
  CHECK(t.h.ErrorOf(SampleOf(t.h, sampler, 0)) == std::nullopt);
  const std::string version = t.other->Received<SendSample>().back().version_id;
  CHECK(t.other->VersionWeights(version) == Words{"step 2 [1]"});
}

TEST_CASE("Migration: a model goes at once when its group has nothing of it", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.h.DetachWorker(/*process_gone=*/true);
  const CallId waits = t.h.Gradient(model, 3);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  t.h.Tick();
  t.h.RunWorker();
  CHECK(t.h.ErrorOf(waits) == std::nullopt);
  CHECK(t.other->Weights(model) == Words{"step 2 [1]"});
}

TEST_CASE("Migration: a target that is lost meanwhile holds up nothing", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  const CallId running = t.h.Gradient(model, 1);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  t.h.Tick();
  const CallId step = t.h.Step(model, 2);
  t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
  t.h.others.clear();
  t.Pass();
  CHECK(t.h.Done(running));
  CHECK(t.h.ErrorOf(step) == std::nullopt);
  CHECK(t.GroupOf(model) == "g");
  FakeWorker& again = t.h.AttachOther("h");
  t.Pass();
  CHECK(t.GroupOf(model) == "h");
  CHECK(again.Holds(model));
}

TEST_CASE("Migration: a move is taken back by one to where the model is", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  const CallId running = t.h.Gradient(model, 1);
  REQUIRE(MoveTo(t.h, model, "h").empty());
  t.h.Tick();
  REQUIRE(MoveTo(t.h, model, "g").empty());
  t.Pass();
  CHECK(t.h.Done(running));
  CHECK(t.GroupOf(model) == "g");
}

TEST_CASE("Migration: wrong names are refused, with those that there are", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  CHECK(MoveTo(t.h, "nobody", "h") ==
        "model_id is 'nobody', which no live model has; live models: " + model);
  CHECK(MoveTo(t.h, model, "x") == "group is 'x', which does not exist; groups: g, h");
  CHECK(SetDraining(t.h, "x") == "group is 'x', which does not exist; groups: g, h");
  t.h.AttachOther("s", GroupRole::kSample);
  CHECK(MoveTo(t.h, model, "s") ==
        "group is 's', which has the role to sample only; groups that could take model " + model +
            ": g, h");
  REQUIRE(SetDraining(t.h, "h").empty());
  CHECK(MoveTo(t.h, model, "h") ==
        "group is 'h', which is drained; groups that could take model " + model + ": g");
}

// ---- drains

TEST_CASE("Drains: other groups take over the models and samples of a group", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.h.Sampler(t.session, 1, "");
  const CallId running = t.h.Sample(t.session + ":sample:1", 0);
  REQUIRE(SetDraining(t.h, "g").empty());
  CHECK(t.h.drains.at("g").left == "1 model, 1 request");
  t.Pass();
  CHECK(t.h.Done(running));
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.h.drains.at("g").left.empty());
  CHECK(t.h.drains.at("g").is_draining);
  t.h.worker->ForgetReceived();
  t.h.NewModel(t.session, 1);
  for (int64_t seq = 1; seq < 5; ++seq) SampleOf(t.h, t.session + ":sample:1", seq);
  Step(t.h, model, 3);
  CHECK(t.h.worker->Received<SendCreateAdapter>().empty());
  CHECK(t.h.worker->Received<SendSample>().empty());
  CHECK(t.other->Weights(model).size() == 2);

  SECTION("a new leader knows of it") {
    t.h.RestartEngine();
    t.h.ReattachWorker();
    t.h.ReattachOther("h");
    t.h.drains.clear();
    t.h.NewModel(t.session, 2);
    CHECK(t.GroupOf(t.session + ":train:2") == "h");
    t.h.Tick();
    CHECK(t.h.drains.at("g").left.empty());
  }
  SECTION("it is used again") {
    REQUIRE(SetDraining(t.h, "g", false).empty());
    CHECK_FALSE(t.h.drains.at("g").is_draining);
    t.h.NewModel(t.session, 2);
    CHECK(t.GroupOf(t.session + ":train:2") == "g");
  }
}

TEST_CASE("Drains: one model waits at a time, and none for ever", "[core]") {
  Groups t;
  t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
  t.h.others.clear();
  const std::string a = t.h.NewModel(t.session, 0);
  const std::string b = t.h.NewModel(t.session, 1);
  Step(t.h, a, 1);
  Step(t.h, b, 1);
  t.other = &t.h.AttachOther("h");
  t.h.worker->writes_to_disk = false;
  REQUIRE(SetDraining(t.h, "g").empty());
  t.h.Tick();
  const CallId of_a = t.h.Gradient(a, 3);
  const CallId of_b = t.h.Gradient(b, 3);
  t.Pass();
  CHECK(t.h.Done(of_a) != t.h.Done(of_b));
  for (int i = 0; i < 130; ++i) t.h.Tick();
  t.h.RunWorker();
  CHECK(t.h.Done(of_a));
  CHECK(t.h.Done(of_b));
  t.h.Tick();
  CHECK(t.h.drains.at("g").left == "2 models");
}

TEST_CASE("Drains: offloaded models migrate too", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.h.Advance(601 * kSecond);
  t.Pass();
  REQUIRE(t.h.store.models().at(model).is_offloaded);
  REQUIRE(SetDraining(t.h, "g").empty());
  t.Pass();
  CHECK(t.h.drains.at("g").left.empty());
  Step(t.h, model, 3);
  CHECK(t.other->Weights(model) == Words{"step 2 [1]", "step 4 [3]"});
}

TEST_CASE("Drains: the only group for some work is not drained", "[core]") {
  Groups t(GroupRole::kBoth, GroupRole::kSample);
  CHECK(SetDraining(t.h, "g") ==
        "group is 'g': no other group that is ready and not drained trains base; there are: g, h");
  CHECK(SetDraining(t.h, "h").empty());
  CHECK(SetDraining(t.h, "g") ==
        "group is 'g': no other group that is ready and not drained trains base; there are: g, h");
}

TEST_CASE("Drains: a drained group works while no other group can", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  REQUIRE(SetDraining(t.h, "g").empty());
  t.h.Post(WorkerDetached{"h", /*process_gone=*/true});
  t.h.others.clear();
  t.Pass();
  CHECK(t.GroupOf(model) == "g");
  Step(t.h, model, 1);
  CHECK(t.h.worker->Weights(model) == Words{"step 2 [1]"});
  t.h.NewModel(t.session, 1);
  CHECK(t.h.worker->Holds(t.session + ":train:1"));
}

// ---- models that end workers

// Ends worker g repeatedly while it rebuilds the model. The worker then stays away.
void CutRecovery(Groups& t, int times) {
  for (int i = 0; i < times; ++i) {
    t.h.DetachWorker(/*process_gone=*/true);
    t.h.Advance(40 * kSecond);  // longest pause between two tries
    t.h.AttachWorker("next" + std::to_string(i));
    t.h.Advance(40 * kSecond);
  }
  t.LoseFirst(kLost);
}

TEST_CASE("Migration: a model whose recoveries end workers does not go from group to group",
          "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  Snapshot(t.h);
  const bool may_have_any_owner = GENERATE(true, false);
  const CallId waits = t.h.Gradient(model, 3);
  CutRecovery(t, may_have_any_owner ? 1 : 2);
  t.Pass();
  if (may_have_any_owner) {
    CHECK(t.GroupOf(model) == "h");
    return;
  }
  CHECK(t.GroupOf(model) == "g");
  CHECK_FALSE(t.other->Holds(model));
  CHECK(t.h.model_states.at(model).reason ==
        "its model is not moved to another group, as it may have ended its worker repeatedly; "
        "`lathe move` moves it all the same");
  SECTION("it goes on when its own comes back") {
    t.h.AttachWorker("back");
    t.h.Advance(40 * kSecond);
    t.Pass();
    CHECK(t.h.ErrorOf(waits) == std::nullopt);
    CHECK(t.h.worker->Weights(model) == Words{"step 2 [1]"});
    CHECK(t.h.model_states.at(model).reason.empty());
  }
  SECTION("or when an operator asks for it") {
    REQUIRE(MoveTo(t.h, model, "h").empty());
    t.Pass();
    CHECK(t.h.ErrorOf(waits) == std::nullopt);
    CHECK(t.GroupOf(model) == "h");
  }
}

TEST_CASE("Migration: nor does one whose request has ended a worker while it ran alone", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  const CallId killer = t.h.Gradient(model, 1);
  for (int i = 0; i < 2; ++i) {
    t.h.Post(WorkerStarted{"g", t.h.worker->epoch(), {t.h.AnswerTo(killer).id}});
    t.h.attached = false;
    t.h.Post(WorkerDetached{"g", /*process_gone=*/true, LossCause::kCrashed, "signal 11"});
    if (i == 1) break;
    t.h.AttachWorker("next");
    for (int step = 0; step < 9 && t.h.worker->Received<SendTrainBatch>().empty(); ++step) {
      t.h.RunWorkerOnce();
    }
    REQUIRE(t.h.worker->Received<SendTrainBatch>().size() == 1);
  }
  t.h.Advance(kLost);
  t.Pass();
  CHECK(t.GroupOf(model) == "g");
  CHECK(t.other->Received<SendTrainBatch>().empty());
}

}  // namespace
}  // namespace lathe::engine
