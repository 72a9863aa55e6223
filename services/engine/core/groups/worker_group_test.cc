#include "services/engine/core/groups/worker_group.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

using History = std::vector<std::string>;

TEST_CASE("Group: without a worker requests are accepted and queued", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.DetachWorker();
  CHECK(h.queue_state->paused);
  const CallId create = h.CreateModel(session, 0);
  const CallId step = h.Step(session + ":train:0", 1);
  CHECK_FALSE(h.AnswerTo(step).error.has_value());
  h.ReattachWorker();
  CHECK_FALSE(h.queue_state->paused);
  h.RunWorker();
  CHECK(h.Done(create));
  CHECK(h.Done(step));
}

TEST_CASE("Group: nothing is sent while the base model loads", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2", /*ready=*/false);
  h.CreateModel(session, 0);
  CHECK(h.queue_state->paused);
  CHECK(h.worker->received().size() == 1);  // only the Form
  h.Post(WorkerReady{"g", *h.worker->Hello().ready});
  CHECK(h.worker->Received<SendCreateAdapter>().size() == 1);
}

TEST_CASE("Group: a killed engine adopts the living worker and goes on", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  h.RunWorker();
  h.Gradient(2);
  h.Step(3);
  h.Gradient(4);
  h.worker->RunOne();  // the report is lost with the engine
  h.RestartEngine();
  h.ReattachWorker();
  CHECK(h.worker->Received<AdoptGroup>().size() == 1);
  h.RunWorker();
  const CallId last = h.Step(5);
  h.RunWorker();
  CHECK(h.StateOf(last) == RequestState::kDone);
  CHECK(h.worker->History(h.model) ==
        History{"fb 1", "fb 2", "step 3 [1,2]", "fb 4", "step 5 [4]"});
}

TEST_CASE("Group: a step whose result the dead engine never saw is not run again", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  h.RunWorker();
  const CallId step = h.Step(2);
  h.worker->RunOne();
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->History(h.model) == History{"fb 1", "step 2 [1]"});
}

TEST_CASE("Group: results are acknowledged once they are durable", "[core]") {
  ModelHarness h;
  const CallId call = h.Gradient(1);
  const std::string id = h.AnswerTo(call).id;
  h.HoldCommits();
  h.worker->RunOne();
  for (EventBody& report : h.worker->TakeReports()) h.Post(std::move(report));
  CHECK(h.worker->acked().count(id) == 0);
  h.CommitAll();
  CHECK(h.worker->acked().count(id) == 1);
  CHECK(h.Done(call));
}

TEST_CASE("Group: a result already decided is only acknowledged", "[core]") {
  ModelHarness h;
  const CallId call = h.Step(1);
  h.RunWorker();
  WorkerDone again;
  again.group = "g";
  again.epoch = h.worker->epoch();
  again.request_id = h.AnswerTo(call).id;
  again.result_id = "again";
  h.actions.clear();
  h.Post(again);
  REQUIRE(h.actions.size() == 2);
  CHECK(std::get<ForgetResult>(h.actions[0]).result_id == "again");
  CHECK(std::holds_alternative<SendAck>(std::get<SendToWorker>(h.actions[1]).command));
}

TEST_CASE("Group: a new process gets the models again, and what was not ready", "[core]") {
  ModelHarness h;
  const CallId gradient = h.Gradient(1);
  const CallId creating = h.CreateModel(h.session, 1);
  const int64_t old_epoch = h.worker->epoch();
  h.AttachWorker("p2");
  CHECK(h.worker->epoch() == old_epoch + 1);
  CHECK_FALSE(h.Done(gradient));
  h.RunWorker();
  CHECK(h.StateOf(creating) == RequestState::kDone);
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  CHECK(h.worker->History(h.model) == History{"fb 1"});
}

TEST_CASE("Group: a worker that stays away is declared dead after worker_lost_timeout", "[core]") {
  ModelHarness h;
  h.DetachWorker();
  const CallId call = h.Gradient(1);
  h.Advance(14 * kSecond);
  CHECK_FALSE(h.Done(call));
  h.Advance(2 * kSecond);
  CHECK_FALSE(h.Done(call));
  h.ReattachWorker();
  CHECK(h.worker->Received<FormGroup>().size() == 2);
  h.RunWorker();
  CHECK(h.StateOf(call) == RequestState::kDone);
}

TEST_CASE("Group: a broken connection loses nothing", "[core]") {
  ModelHarness h;
  h.Gradient(1);
  h.Step(2);
  h.DetachWorker();
  h.worker->RunOne();
  h.Gradient(3);
  h.ReattachWorker();
  h.RunWorker();
  CHECK(h.worker->History(h.model) == History{"fb 1", "step 2 [1]", "fb 3"});
}

TEST_CASE("Group: a lost clearing is repeated when the worker is adopted", "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 2, {absl::StatusCode::kInvalidArgument, "x", "", "bad"});
  h.Gradient(1);
  h.Gradient(2);
  h.RunWorker();
  h.DetachWorker();
  h.Step(3);  // refused; the command to clear is lost
  h.RestartEngine();
  h.ReattachWorker();
  h.Gradient(4);
  h.Step(5);
  h.RunWorker();
  CHECK(h.worker->History(h.model) == History{"fb 1", "clear", "fb 4", "step 5 [4]"});
}

TEST_CASE("Group: a clearing that is still to run is not repeated behind the next gradient",
          "[core]") {
  ModelHarness h;
  h.worker->FailOnce(h.model, 2, {absl::StatusCode::kInvalidArgument, "x", "", "bad"});
  h.Gradient(1);
  h.Gradient(2);
  h.RunWorker();
  h.Step(3);  // refused
  h.Gradient(4);
  WorkerAttached hello = h.worker->Hello();
  REQUIRE(hello.running_request_ids.size() == 1);
  hello.models.front().window = {1};
  h.DetachWorker();
  h.worker->ForgetReceived();
  h.ReattachAs(hello);
  CHECK(h.worker->Received<AdoptGroup>().size() == 1);
  CHECK(h.worker->Received<SendClearGradient>().empty());
}

TEST_CASE("Group: commands decided for a stream go to no later stream", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  h.DetachWorker();
  WorkerAttached hello = h.worker->Hello();
  h.actions.clear();
  h.HoldCommits();
  for (const int64_t stream_id : {5, 6}) {
    hello.stream_id = stream_id;
    h.Post(hello);
  }
  h.CommitAll();
  std::vector<int64_t> adopted;
  for (const Action& action : h.actions) {
    const auto* const send = std::get_if<SendToWorker>(&action);
    if (send != nullptr && std::holds_alternative<AdoptGroup>(send->command)) {
      adopted.push_back(send->stream_id);
    }
  }
  CHECK(adopted == std::vector<int64_t>{5, 6});
}

TEST_CASE("Group: models and versions that are not needed any more are dropped on adoption",
          "[core]") {
  ModelHarness h;
  h.DetachWorker();
  h.Post(FinishSession{++h.last_call, "t", h.session, "success", ""});
  h.RestartEngine();
  h.ReattachWorker();
  h.RunWorker();
  CHECK_FALSE(h.worker->Holds(h.model));
}

TEST_CASE("Group: bodies that the store could not give in time are sent with the next tick",
          "[core]") {
  ModelHarness h;
  h.Sampler(h.session, 0, "");
  const CallId gradient = h.Gradient(1);
  const CallId sample = h.Sample(h.session + ":sample:0", 1);
  h.worker->ForgetQueue();
  for (const CallId call : {gradient, sample}) {
    h.Post(BodyUnavailable{"g", h.worker->epoch(), h.AnswerTo(call).id});
  }
  h.worker->ForgetReceived();
  h.Tick();
  CHECK(h.worker->Received<SendTrainBatch>().size() == 1);
  CHECK(h.worker->Received<SendSample>().size() == 1);
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  CHECK(h.StateOf(sample) == RequestState::kDone);
}

TEST_CASE("Group: a process that never got its Form has crashed no group", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const CallId call = h.CreateModel(h.NewSession(), 0);
  for (int i = 0; i < 5; ++i) {
    h.DetachWorker();
    h.AttachWorker("p1");
  }
  h.RunWorker();
  CHECK(h.StateOf(call) == RequestState::kDone);
}

size_t NumSent(const CoreHarness& h) {
  size_t sent = 0;
  for (const SendTrainBatch& batch : h.worker->Received<SendTrainBatch>()) {
    sent += batch.items.size();
  }
  return sent;
}

TEST_CASE("Batching: a busy worker gets the ready requests, up to two batches", "[core]") {
  CoreOptions options;
  options.batch_tokens = 100;
  ModelHarness h(options);
  for (int64_t seq = 1; seq <= 12; ++seq) {
    h.Train(h.model, seq, OperationKind::kForwardBackward, "", "t", 50);
  }
  CHECK(NumSent(h) == 4);
  h.RunWorkerOnce();
  CHECK(NumSent(h) == 5);
}

TEST_CASE("Batching: requests of many passes hold up neither small ones nor each other", "[core]") {
  CoreOptions options;
  options.batch_tokens = 100;
  CoreHarness h(options);
  h.AttachWorker();
  const auto model_of = [&](const std::string& tenant) {
    return h.NewModel(h.NewSession(SessionOrdering::kSerial, tenant), 0, tenant);
  };
  const auto train = [&](const std::string& model, int64_t seq, const std::string& tenant,
                         int64_t tokens) {
    h.Train(model, seq, OperationKind::kForwardBackward, "", tenant, tokens);
  };
  const std::string a = model_of("a");
  const std::string b = model_of("b");
  const std::string c = model_of("c");
  for (int64_t seq = 1; seq <= 5; ++seq) train(a, seq, "a", 1'000'000);
  CHECK(NumSent(h) == 2);  // one executes and one is ready
  train(b, 1, "b", 20);
  CHECK(NumSent(h) == 3);
  train(c, 1, "c", 2000);
  CHECK(NumSent(h) == 4);
}

}  // namespace
}  // namespace lathe::engine
