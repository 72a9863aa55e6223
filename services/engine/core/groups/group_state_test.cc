#include "services/engine/core/groups/group_state.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

using Catch::Contains;

// Attaches processes that die while they load.
void DieLoading(CoreHarness& h, int times) {
  static int num_processes = 100;
  for (int i = 0; i < times; ++i) {
    h.AttachWorker("p" + std::to_string(++num_processes), /*ready=*/false);
    h.attached = false;
    h.Post(WorkerDetached{"g", /*process_gone=*/true, LossCause::kCrashed, "signal 11"});
  }
}

bool IsDegraded(const CoreHarness& h) { return h.queue_state->trouble == GroupTrouble::kDegraded; }

TEST_CASE("Group state: five deaths in ten minutes degrade a group, with the reason", "[core]") {
  CoreHarness h;
  DieLoading(h, 4);
  CHECK_FALSE(IsDegraded(h));
  CHECK(h.queue_state->reason ==
        "waiting for a worker of base; the last one: signal 11 while loading base");
  DieLoading(h, 1);
  CHECK(IsDegraded(h));
  CHECK(h.queue_state->paused);
  CHECK_THAT(h.queue_state->reason, Contains("worker died 5 times in 10 minutes, last: signal 11 "
                                             "while loading base"));
}

TEST_CASE("Group state: the last death is shown while the next worker loads", "[core]") {
  CoreHarness h;
  DieLoading(h, 1);
  h.AttachWorker("p", /*ready=*/false);
  CHECK(h.queue_state->reason == "base is loading; the last one: signal 11 while loading base");
}

TEST_CASE("Group state: a worker's own words are kept, though its exit is reported first",
          "[core]") {
  CoreHarness h;
  h.AttachWorker("p", /*ready=*/false);
  h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kCrashed, "exit code 78"});
  h.attached = false;
  h.Post(WorkerDetached{"g", /*process_gone=*/true, LossCause::kCrashed, "it cannot be loaded"});
  CHECK(h.queue_state->reason ==
        "waiting for a worker of base; the last one: exit code 78: it cannot be loaded while "
        "loading base");
}

TEST_CASE("Group state: the next try is shown and comes closer", "[core]") {
  CoreHarness h;
  DieLoading(h, 5);
  h.Post(WorkerExited{"g", 7, LossCause::kCrashed, "signal 6", 40 * kSecond});
  CHECK_THAT(h.queue_state->reason, Contains("next try in 40 s"));
  h.Advance(10 * kSecond);
  CHECK_THAT(h.queue_state->reason, Contains("next try in 30 s"));
}

TEST_CASE("Group state: deaths that are far apart are none of a loop", "[core]") {
  CoreHarness h;
  for (int i = 0; i < 10; ++i) {
    DieLoading(h, 1);
    h.Advance(200 * kSecond);
  }
  CHECK_FALSE(IsDegraded(h));
}

TEST_CASE("Group state: a process that was asked to end or lost its connection has not died",
          "[core]") {
  CoreHarness h;
  const LossCause cause = GENERATE(LossCause::kEnded, LossCause::kUnknown);
  for (int i = 0; i < 10; ++i) {
    h.AttachWorker("p" + std::to_string(i));
    h.attached = false;
    h.Post(WorkerDetached{"g", /*process_gone=*/true, cause, ""});
  }
  CHECK_FALSE(IsDegraded(h));
}

TEST_CASE("Group state: a degraded group heals when its worker has done work, or has lived",
          "[core]") {
  CoreHarness h;
  DieLoading(h, 5);
  h.AttachWorker("healthy");
  CHECK(IsDegraded(h));
  CHECK_FALSE(h.queue_state->paused);  // the new worker is used
  SECTION("work") { h.NewModel(h.NewSession()); }
  SECTION("time") {
    h.Advance(119 * kSecond);
    CHECK(IsDegraded(h));
    h.Advance(2 * kSecond);
  }
  CHECK_FALSE(IsDegraded(h));
}

TEST_CASE("Group state: a death that was reported twice is one", "[core]") {
  CoreHarness h;
  DieLoading(h, 4);
  h.AttachWorker("p9");
  for (int i = 0; i < 3; ++i) {
    h.Post(WorkerExited{"g", /*pid=*/17, LossCause::kCrashed, "signal 11"});
  }
  h.DetachWorker();
  CHECK(IsDegraded(h));
  CHECK_THAT(h.queue_state->reason, Contains("died 5 times"));
}

TEST_CASE("Group state: the death of a process counts, though one before it had its pid",
          "[core]") {
  CoreHarness h;
  DieLoading(h, 3);
  const WorkerExited death{"g", /*pid=*/17, LossCause::kCrashed, "signal 11"};
  h.AttachWorker("p8");
  h.Post(death);
  h.DetachWorker();
  h.AttachWorker("p9");
  h.DetachWorker();
  CHECK_FALSE(IsDegraded(h));
  h.Post(death);
  CHECK(IsDegraded(h));
  CHECK_THAT(h.queue_state->reason, Contains("died 5 times"));
}

ReadyModel Changed(const CoreHarness& h) {
  ReadyModel changed = *h.worker->Hello().ready;
  changed.row.content_hash = "other";
  return changed;
}

TEST_CASE("Group state: a worker with other files than its models were trained on is refused",
          "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string known = h.worker->Hello().ready->row.content_hash;
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  const CallId gradient = h.Gradient(model, 1);
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2", /*ready=*/false);
  h.Post(WorkerReady{"g", Changed(h)});
  h.RunWorker();
  CHECK(h.queue_state->paused);
  CHECK(h.queue_state->trouble == GroupTrouble::kRefused);
  CHECK_THAT(h.queue_state->reason, Contains("content hash other") && Contains("1 models") &&
                                        Contains("made with " + known));
  CHECK_FALSE(h.Done(gradient));

  h.AttachWorker("p3");  // resumes with the right files
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  CHECK(h.queue_state->trouble == GroupTrouble::kNone);
}

TEST_CASE("Group state: a refused worker is used once no model needs the old files", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  h.NewModel(session);
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2", /*ready=*/false);
  h.Post(WorkerReady{"g", Changed(h)});
  REQUIRE(h.queue_state->trouble == GroupTrouble::kRefused);
  h.Post(FinishSession{++h.last_call, "t", session, "success", ""});
  h.Tick();
  CHECK(h.queue_state->trouble == GroupTrouble::kNone);
  CHECK_FALSE(h.queue_state->paused);
}

TEST_CASE("Group state: a worker that may not be used gets no work, and a later one does",
          "[core]") {
  CoreHarness h;
  h.AttachWorker();
  const std::string session = h.NewSession();
  const std::string model = h.NewModel(session);
  const CallId gradient = h.Gradient(model, 1);
  h.DetachWorker(/*process_gone=*/true);
  h.AttachWorker("p2", /*ready=*/false);
  WorkerAttached hello = h.worker->Hello();
  hello.refusal = "it has another store";
  h.ReattachAs(hello);
  h.Tick();
  h.RunWorker();
  CHECK(h.queue_state->paused);
  CHECK(h.queue_state->trouble == GroupTrouble::kRefused);
  CHECK(h.queue_state->reason == "it has another store");
  CHECK_FALSE(h.Done(gradient));
  CHECK(h.worker->Received<SendCreateAdapter>().empty());

  h.AttachWorker("p3");
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  CHECK(h.queue_state->trouble == GroupTrouble::kNone);
}

TEST_CASE("Group state: new files are used when no model was trained on the old ones", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  h.AttachWorker("p2", /*ready=*/false);
  h.Post(WorkerReady{"g", Changed(h)});
  CHECK_FALSE(h.queue_state->paused);
  CHECK(h.queue_state->trouble == GroupTrouble::kNone);
}

}  // namespace
}  // namespace lathe::engine
