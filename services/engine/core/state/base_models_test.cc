#include "services/engine/core/state/base_models.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"
#include "services/engine/core/testing/recovery_steps.h"
#include "services/engine/core/testing/two_groups.h"

namespace lathe::engine {
namespace {

// The error message of the answer; empty: the group was removed.
std::string Remove(CoreHarness& h, const std::string& group) {
  h.Post(RemoveGroup{++h.last_call, group});
  const Answer& answer = h.AnswerTo(h.last_call);
  return answer.error ? answer.error->message : "";
}

TEST_CASE("Base models: one stays served while its worker is away", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.DetachWorker(/*process_gone=*/true);
  h.RestartEngine();
  CHECK_FALSE(h.AnswerTo(h.CreateModel(session, 0)).error.has_value());
  CHECK_FALSE(h.AnswerTo(h.Sampler(session, 0, "")).error.has_value());
}

TEST_CASE("Base models: the row has the modules that the last worker said", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  CHECK(h.store.base_models().at("base").lora_modules == DenseLoraModules());
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2", /*ready=*/false);
  h.worker->lora_modules = {{"q_proj", LoraFamily::kAttention}, {"router", LoraFamily::kMlp}};
  h.Post(WorkerReady{"g", *h.worker->Hello().ready});
  CHECK(h.store.base_models().at("base").lora_modules == h.worker->lora_modules);
}

TEST_CASE("Base models: one whose group has another now is refused by name", "[core]") {
  ModelHarness h;
  h.Save(1, {.name = "a"});
  h.RunWorker();
  h.Sampler(h.session, 0, "");
  h.AttachWorker("p2", /*ready=*/true, "other");
  const LoadArgs load{.path = "tinker://" + h.model + "/weights/a", .creates_model = true};
  for (const CallId call :
       {h.CreateModel(h.session, 1), h.Sampler(h.session, 1, ""),
        h.Sample(h.session + ":sample:0", 1),
        h.SubmitArgs(h.session, OpClass::kModel, 1, OperationKind::kLoadWeights, load)}) {
    REQUIRE(h.AnswerTo(call).error.has_value());
    CHECK(h.AnswerTo(call).error->status == absl::StatusCode::kNotFound);
    CHECK(h.AnswerTo(call).error->code == "unknown_base_model");
    CHECK(h.AnswerTo(call).error->message == "base_model base not found; served: other");
  }
}

TEST_CASE("Base models: requests for a model that is no longer served fail and say so", "[core]") {
  SamplerHarness h;
  h.DetachWorker(/*process_gone=*/true);
  const CallId create = h.CreateModel(h.session, 0);
  const CallId sample = h.Sample(h.sampler, 1);
  h.RestartEngine();
  h.AttachWorker("p2", /*ready=*/false, "other");
  REQUIRE(h.Done(create));
  CHECK(h.ErrorOf(create)->message.find("base_model base not found") != std::string::npos);
  REQUIRE(h.Done(sample));
  CHECK(h.ErrorOf(sample)->code == "unknown_base_model");
}

TEST_CASE("Base models: one that comes back is served again", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.AttachWorker("p2", /*ready=*/true, "other");
  h.AttachWorker("p3");
  CHECK_FALSE(h.AnswerTo(h.CreateModel(session, 0)).error.has_value());
}

TEST_CASE("Base models: one whose only group is removed is refused by name", "[core]") {
  SamplerHarness h;
  h.DetachWorker(/*process_gone=*/true);
  const CallId waits = h.CreateModel(h.session, 1);
  REQUIRE(Remove(h, "g").empty());
  CHECK(h.ErrorOf(waits)->message.find("base_model base not found") != std::string::npos);
  CHECK(h.queue_states.at("g").paused);
  const bool restarts = GENERATE(false, true);
  if (restarts) h.RestartEngine();
  for (const CallId call : {h.CreateModel(h.session, 2), h.Sample(h.sampler, 2)}) {
    REQUIRE(h.AnswerTo(call).error.has_value());
    CHECK(h.AnswerTo(call).error->code == "unknown_base_model");
  }
  CHECK(Remove(h, "g") == "group is 'g', which does not exist; groups: none");
  h.AttachWorker("p2");
  CHECK_FALSE(h.AnswerTo(h.CreateModel(h.session, 3)).error.has_value());
}

TEST_CASE("Base models: requests for a removed group fail, and its models go on later", "[core]") {
  SamplerHarness h;
  const std::string model = h.NewModel(h.session, 1);
  Step(h, model, 1);
  const bool were_sent = GENERATE(false, true);
  const bool is_known_to_be_gone = GENERATE(false, true);
  if (!were_sent) h.DetachWorker(is_known_to_be_gone);
  const std::vector<CallId> waiting = {h.Gradient(model, 3), h.Step(model, 4),
                                       h.Sample(h.sampler, 1)};
  if (were_sent) h.DetachWorker(is_known_to_be_gone);
  REQUIRE(Remove(h, "g").empty());
  const bool restarts = GENERATE(false, true);
  if (restarts) h.RestartEngine();
  for (const CallId call : waiting) {
    REQUIRE(h.Done(call));
    CHECK(h.ErrorOf(call)->code == "unknown_base_model");
    CHECK(h.ErrorOf(call)->message == "base_model base not found; served: none yet");
    h.Post(Delivered{h.AnswerTo(call).id, "t"});
  }
  Replace(h);
  Step(h, model, 5);
  CHECK(h.worker->Weights(model) == Words{"step 2 [1]", "step 6 [5]"});
}

TEST_CASE("Base models: models of a removed group go on in another group", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  REQUIRE(t.GroupOf(model) == "g");
  Step(t.h, model, 1);
  const bool is_known_to_be_gone = GENERATE(false, true);
  t.h.DetachWorker(is_known_to_be_gone);
  const CallId gradient = t.h.Gradient(model, 3);
  REQUIRE(Remove(t.h, "g").empty());
  t.Pass();
  CHECK(t.GroupOf(model) == "h");
  CHECK(t.h.ErrorOf(gradient) == std::nullopt);
  CHECK(t.other->Weights(model) == Words{"step 2 [1]"});
}

TEST_CASE("Base models: a removed group that returns begins anew", "[core]") {
  Groups t;
  const std::string model = t.h.NewModel(t.session, 0);
  Step(t.h, model, 1);
  t.h.DetachWorker();
  REQUIRE(Remove(t.h, "g").empty());
  t.Pass();
  t.h.ReattachWorker();
  t.Pass();
  CHECK(t.GroupOf(model) == "h");
  CHECK_FALSE(t.h.worker->Holds(model));
  Step(t.h, model, 3);
  CHECK(t.other->Weights(model).size() == 2);
}

TEST_CASE("Base models: a group with a worker is not removed", "[core]") {
  Groups t;
  CHECK(Remove(t.h, "h").find("group is 'h', which has an attached worker, process") == 0);
  CHECK(Remove(t.h, "x") == "group is 'x', which does not exist; groups: g, h");
}

TEST_CASE("Base models: a degraded group that is removed is no trouble any more", "[core]") {
  Groups t;
  t.h.DetachWorker(/*process_gone=*/true);
  for (int i = 0; i < 6; ++i) {
    t.h.Post(WorkerExited{.group = "g", .pid = 100 + i, .cause = LossCause::kCrashed, .how = "x"});
  }
  REQUIRE(t.h.queue_states.at("g").trouble == GroupTrouble::kDegraded);
  REQUIRE(Remove(t.h, "g").empty());
  CHECK(t.h.queue_states.at("g").trouble == GroupTrouble::kNone);
}

}  // namespace
}  // namespace lathe::engine
