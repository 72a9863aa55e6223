#include "services/engine/core/groups/crash_attribution.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/model_harness.h"

namespace lathe::engine {
namespace {

void Die(CoreHarness& h, LossCause cause, const std::string& how = "signal 11") {
  h.attached = false;
  h.Post(WorkerDetached{"g", /*process_gone=*/true, cause, how});
}

std::vector<size_t> BatchSizes(const CoreHarness& h) {
  std::vector<size_t> sizes;
  for (const SendTrainBatch& batch : h.worker->Received<SendTrainBatch>()) {
    sizes.push_back(batch.items.size());
  }
  return sizes;
}

// Runs recovery commands until requests arrive.
void RunRecoveries(CoreHarness& h) {
  while (BatchSizes(h).empty() && h.worker->HasWork()) h.RunWorkerOnce();
}

// Runs the recoveries of two models whose requests do not wait for each other.
void RunBothRecoveries(CoreHarness& h) {
  RunRecoveries(h);
  for (int i = 0; i < 2; ++i) h.RunWorkerOnce();
}

// Two models with one gradient each at the worker.
struct TwoAtWork {
  explicit TwoAtWork(bool is_supervised = false) {
    h.is_supervised = is_supervised;
    h.AttachWorker();
    a = h.NewModel(h.NewSession(SessionOrdering::kSerial, "a"), 0, "a");
    b = h.NewModel(h.NewSession(SessionOrdering::kSerial, "b"), 0, "b");
    of_a = h.Train(a, 1, OperationKind::kForwardBackward, "", "a");
    of_b = h.Train(b, 1, OperationKind::kForwardBackward, "", "b");
    h.Post(WorkerStarted{"g", h.worker->epoch(), {h.AnswerTo(of_a).id, h.AnswerTo(of_b).id}});
  }

  // Attaches another process before the exit of the last one is reported.
  void AttachNext() {
    ++h.pid;
    h.AttachWorker("p" + std::to_string(h.pid));
  }

  CoreHarness h;
  std::string a, b;
  CallId of_a = 0, of_b = 0;
};

TEST_CASE("Crash attribution: a request that ran when its worker died runs again alone", "[core]") {
  TwoAtWork t;
  Die(t.h, GENERATE(LossCause::kCrashed, LossCause::kOutOfMemory));
  t.h.AttachWorker("p2");
  CHECK(BatchSizes(t.h).empty());  // recoveries come first
  RunRecoveries(t.h);
  CHECK(BatchSizes(t.h) == std::vector<size_t>{1});
  t.h.RunWorkerOnce();
  CHECK(t.h.Done(t.of_a));
  CHECK(BatchSizes(t.h) == std::vector<size_t>{1, 1});
  t.h.RunWorker();
  CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
}

TEST_CASE(
    "Crash attribution: those of a model run in the order of their seqs, not of their arrival",
    "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession(SessionOrdering::kConcurrent, "a"), 0, "a");
  const CallId second = h.Train(model, 2, OperationKind::kForwardBackward, "", "a");
  const CallId first = h.Train(model, 1, OperationKind::kForwardBackward, "", "a");
  h.Post(WorkerStarted{"g", h.worker->epoch(), {h.AnswerTo(first).id, h.AnswerTo(second).id}});
  Die(h, LossCause::kCrashed);
  h.AttachWorker("p2");
  h.RunWorker();
  const auto batches = h.worker->Received<SendTrainBatch>();
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].items[0].seq_id == 1);
  CHECK(batches[1].items[0].seq_id == 2);
}

TEST_CASE(
    "Crash attribution: a request that crashes the worker twice while alone is failed, no other",
    "[core]") {
  TwoAtWork t;
  Die(t.h, LossCause::kCrashed);
  for (const char* process : {"p2", "p3"}) {
    CHECK_FALSE(t.h.Done(t.of_a));
    t.h.AttachWorker(process);
    RunRecoveries(t.h);
    REQUIRE(BatchSizes(t.h) == std::vector<size_t>{1});
    Die(t.h, LossCause::kCrashed);
  }
  REQUIRE(t.h.Done(t.of_a));
  CHECK(t.h.ErrorOf(t.of_a)->status == absl::StatusCode::kInternal);
  CHECK(t.h.ErrorOf(t.of_a)->message ==
        "the worker died 2 times while it ran this request alone (signal 11)");
  t.h.AttachWorker("p4");
  t.h.RunWorker();
  CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
}

TEST_CASE("Crash attribution: a failed gradient makes the step that waits for it be refused",
          "[core]") {
  ModelHarness h;
  h.Gradient(1);
  const CallId step = h.Step(2);
  Die(h, LossCause::kCrashed);
  for (const char* process : {"p2", "p3"}) {
    h.AttachWorker(process);
    RunRecoveries(h);
    Die(h, LossCause::kCrashed);
  }
  h.AttachWorker("p4");
  h.RunWorker();
  CHECK(h.ErrorOf(step)->code == "incomplete_gradient");
  h.Gradient(3);
  const CallId next = h.Step(4);
  h.RunWorker();
  CHECK(h.StateOf(next) == RequestState::kDone);
}

TEST_CASE("Crash attribution: no request is quarantined after a stop from outside", "[core]") {
  TwoAtWork t;
  const LossCause cause =
      GENERATE(LossCause::kKilled, LossCause::kEnded, LossCause::kSilent, LossCause::kStuck);
  for (int i = 2; i < 8; ++i) {
    Die(t.h, cause);
    t.h.AttachWorker("p" + std::to_string(i));
    RunBothRecoveries(t.h);
    CHECK(BatchSizes(t.h).size() == 2);  // side by side
  }
  t.h.RunWorker();
  CHECK(t.h.StateOf(t.of_a) == RequestState::kDone);
  CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
}

TEST_CASE("Crash attribution: a barrier of another model waits for them", "[core]") {
  TwoAtWork t;
  Die(t.h, LossCause::kCrashed);
  t.h.AttachWorker("p2");
  RunRecoveries(t.h);
  const std::string session = t.h.NewSession();
  const CallId create = t.h.CreateModel(session, 0);
  CHECK(t.h.worker->Received<SendCreateAdapter>().size() == 2);  // from the recoveries
  t.h.RunWorkerOnce();
  CHECK(t.h.worker->Received<SendCreateAdapter>().size() == 2);
  t.h.RunWorkerOnce();
  CHECK(t.h.worker->Received<SendCreateAdapter>().size() == 3);
  t.h.RunWorker();
  CHECK(t.h.StateOf(create) == RequestState::kDone);
}

TEST_CASE("Crash attribution: a creation that kills its worker fails its model", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const CallId create = h.CreateModel(session, 0);
  for (const char* process : {"p2", "p3", "p4"}) {
    Die(h, LossCause::kCrashed);
    h.AttachWorker(process);
  }
  REQUIRE(h.Done(create));
  CHECK(h.ErrorOf(create)->status == absl::StatusCode::kInternal);
}

TEST_CASE("Crash attribution: without a parent, another process is the sign of a death", "[core]") {
  TwoAtWork t;
  t.h.AttachWorker("p2");
  RunRecoveries(t.h);
  CHECK(BatchSizes(t.h) == std::vector<size_t>{1});
}

TEST_CASE("Crash attribution: with a parent it waits for the reported exit", "[core]") {
  TwoAtWork t(/*is_supervised=*/true);
  SECTION("it says so in time") {
    t.h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kCrashed, "signal 11"});
    t.h.DetachWorker();
    t.h.AttachWorker("p2");
    RunRecoveries(t.h);
    CHECK(BatchSizes(t.h) == std::vector<size_t>{1});
  }
  SECTION("it is late") {
    t.h.AttachWorker("p2");
    RunBothRecoveries(t.h);
    CHECK(BatchSizes(t.h).size() == 2);
  }
}

TEST_CASE(
    "Crash attribution: a crash reported late is attributed to the requests of the dead process",
    "[core]") {
  TwoAtWork t(/*is_supervised=*/true);
  t.AttachNext();
  RunBothRecoveries(t.h);
  REQUIRE(BatchSizes(t.h).size() == 2);  // both run side by side
  SECTION("it runs alone after the next death") {
    t.h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kCrashed, "signal 11"});
    t.AttachNext();
    RunRecoveries(t.h);
    CHECK(BatchSizes(t.h) == std::vector<size_t>{1});
    t.h.RunWorker();
    CHECK(t.h.StateOf(t.of_a) == RequestState::kDone);
    CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
  }
  SECTION("it is done meanwhile") {
    t.h.RunWorker();
    t.h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kCrashed, "signal 11"});
    CHECK(t.h.StateOf(t.of_a) == RequestState::kDone);
    CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
  }
  SECTION("it was stopped from outside") {
    t.h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kEnded, "signal 15"});
    t.AttachNext();
    RunBothRecoveries(t.h);
    CHECK(BatchSizes(t.h).size() == 2);
  }
}

TEST_CASE(
    "Crash attribution: one that always ends its worker is failed though each end is reported late",
    "[core]") {
  CoreHarness h;
  h.is_supervised = true;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession());
  const CallId call = h.Gradient(model, 1);
  int num_deaths = 0;
  while (num_deaths < 10 && !h.Done(call)) {
    const int64_t pid = h.pid++;
    h.AttachWorker("p" + std::to_string(h.pid));
    RunRecoveries(h);
    h.Post(WorkerExited{"g", pid, LossCause::kCrashed, "signal 11"});
    ++num_deaths;
  }
  REQUIRE(h.Done(call));
  CHECK(h.ErrorOf(call)->status == absl::StatusCode::kInternal);
  CHECK(h.ErrorOf(call)->message ==
        "the worker died 2 times while it ran this request alone (signal 11)");
  // Two deaths before the first report and two alone. The report of the last came while the request
  // ran again.
  CHECK(num_deaths == 5);
}

TEST_CASE("Crash attribution: what is said of a pid is said of the process that had it last",
          "[core]") {
  CoreHarness h;
  h.is_supervised = true;
  h.AttachWorker();
  const std::string model = h.NewModel(h.NewSession());
  const CallId call = h.Gradient(model, 1);
  const auto attach = [&](int64_t pid) {
    static int number = 1;
    h.pid = pid;
    h.AttachWorker("p" + std::to_string(++number));
  };
  const auto exit = [&](int64_t pid, LossCause cause) {
    h.Post(WorkerExited{"g", pid, cause, "signal"});
    if (pid == h.pid) h.Post(WorkerDetached{"g", /*process_gone=*/true, LossCause::kUnknown, ""});
  };
  exit(17, LossCause::kCrashed);
  attach(18);
  RunRecoveries(h);
  REQUIRE(BatchSizes(h) == std::vector<size_t>{1});  // it runs alone
  SECTION("the process that is here has it too") {
    attach(18);  // same pid in another container
    exit(18, LossCause::kCrashed);
  }
  SECTION("one that was stopped from outside had it before") {
    attach(19);
    exit(18, LossCause::kEnded);
    exit(18, LossCause::kCrashed);
  }
  attach(20);
  h.Tick();
  RunRecoveries(h);
  REQUIRE(BatchSizes(h) == std::vector<size_t>{1});
  exit(20, LossCause::kCrashed);  // first reported crash while it ran alone
  CHECK_FALSE(h.Done(call));
}

TEST_CASE("Crash attribution: a connection that broke is no death", "[core]") {
  TwoAtWork t;
  t.h.DetachWorker();
  t.h.ReattachWorker();
  t.h.RunWorker();
  CHECK(t.h.StateOf(t.of_a) == RequestState::kDone);
  CHECK(t.h.StateOf(t.of_b) == RequestState::kDone);
}

TEST_CASE("Crash attribution: one that is alone goes on where it was after a broken connection",
          "[core]") {
  TwoAtWork t;
  Die(t.h, LossCause::kCrashed);
  t.h.AttachWorker("p2");
  RunRecoveries(t.h);
  t.h.DetachWorker();
  t.h.ReattachWorker();
  CHECK(BatchSizes(t.h) == std::vector<size_t>{1, 1});  // the same request again
  Die(t.h, LossCause::kCrashed);
  t.h.AttachWorker("p3");
  RunRecoveries(t.h);
  Die(t.h, LossCause::kCrashed);
  CHECK(t.h.Done(t.of_a));
  CHECK_FALSE(t.h.Done(t.of_b));
}

TEST_CASE("Crash attribution: a new leader quarantines no request for an earlier crash", "[core]") {
  TwoAtWork t;
  t.h.RestartEngine();
  t.h.AttachWorker("p2");
  RunBothRecoveries(t.h);
  CHECK(BatchSizes(t.h).size() == 2);
}

TEST_CASE("Crash attribution: a recovery that kills its worker quarantines no request", "[core]") {
  TwoAtWork t;
  Die(t.h, LossCause::kKilled);
  const CallId create = t.h.CreateModel(t.h.NewSession(), 0);
  for (const char* process : {"p2", "p3", "p4", "p5"}) {
    t.h.AttachWorker(process);
    Die(t.h, LossCause::kCrashed);
  }
  t.h.AttachWorker("p6");
  for (int i = 0; i < 100; ++i) {
    t.h.Tick();
    t.h.RunWorker();
  }
  for (const CallId call : {t.of_a, t.of_b, create}) {
    CHECK(t.h.StateOf(call) == RequestState::kDone);
  }
}

}  // namespace
}  // namespace lathe::engine
