// Attribution of the exits of ranks to their group and its requests.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "services/engine/core/testing/ranks_harness.h"

namespace lathe::engine {
namespace {

using Ranks = std::vector<int64_t>;

TEST_CASE("Ranks: a crash is attributed to the running requests, and counts once", "[core]") {
  const int first = GENERATE(0, 1, 2);
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  const CallId gradient = h.Gradient(model, 1);
  const std::string id = h.AnswerTo(gradient).id;
  for (int i = 0; i < 3; ++i) {
    INFO("death " << i + 1);
    const std::string name = std::to_string(i);
    h.Post(WorkerStarted{"g", h.worker->epoch(), {id}});
    const int64_t leader_pid = h.pid;
    const int64_t peer_pid = 101 + i;
    const auto leave = [&] {
      h.Post(WorkerDetached{"g", true, LossCause::kPeerGone, "rank 1 is gone", 0});
    };
    switch ((i + first) % 3) {  // the order of events differs
      case 0:
        h.DetachPeer();
        h.Exit(1, peer_pid, LossCause::kCrashed);
        leave();
        break;
      case 1:
        leave();
        h.DetachPeer();
        h.Exit(1, peer_pid, LossCause::kCrashed);
        break;
      default:
        h.Exit(1, peer_pid, LossCause::kCrashed);
        leave();
        h.DetachPeer();
        break;
    }
    h.Exit(0, leader_pid, LossCause::kPeerGone);
    CHECK(h.NumDeaths() == i + 1);
    ++h.pid;
    h.AttachWorker("p0-" + name);
    h.AttachPeer({"p1-" + name, 1, peer_pid + 1});
    for (int step = 0; step < 9 && h.worker->Received<SendTrainBatch>().empty(); ++step) {
      if (h.StateOf(gradient) == RequestState::kFailed) break;
      h.RunWorkerOnce();
    }
  }
  CHECK(h.StateOf(gradient) == RequestState::kFailed);
  REQUIRE(h.ErrorOf(gradient).has_value());
  CHECK(h.ErrorOf(gradient)->message ==
        "the worker died 2 times while it ran this request alone (rank 1: signal 11)");
}

TEST_CASE("Ranks: a rank that leaves because a peer was stopped has not crashed", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  const CallId gradient = h.Gradient(model, 1);
  h.Post(WorkerStarted{"g", h.worker->epoch(), {h.AnswerTo(gradient).id}});
  h.Post(WorkerDetached{"g", true, LossCause::kPeerGone, "rank 1 is gone", 0});
  h.Exit(1, 101, LossCause::kEnded);
  h.Exit(0, 17, LossCause::kPeerGone);
  CHECK(h.NumDeaths() == 0);
}

TEST_CASE("Ranks: one that dies while its peers are waited for counts once", "[core]") {
  RanksHarness h;
  for (int64_t i = 0; i < 2; ++i) {
    h.AttachPeer({"p1-" + std::to_string(i), 1, 101 + i});
    if (i == 0) {  // the order of events differs
      h.Exit(1, 101 + i, LossCause::kCrashed);
      h.DetachPeer();
    } else {
      h.DetachPeer();
      h.Exit(1, 101 + i, LossCause::kCrashed);
    }
    h.Exit(1, 101 + i, LossCause::kCrashed);  // the parent reconnected and repeats the exit
  }
  CHECK(h.NumDeaths() == 2);
  CHECK(h.queue_state->trouble == GroupTrouble::kDegraded);
}

TEST_CASE("Ranks: a group whose ranks always lose each other is degraded, and says what they say",
          "[core]") {
  RanksHarness h;
  h.is_supervised = GENERATE(true, false);
  for (int64_t i = 0; i < 2; ++i) {
    const std::string name = std::to_string(i);
    h.pid = 17 + i;
    h.AttachWorker("p0-" + name);
    h.AttachPeer({"p1-" + name, 1, 101 + i});
    REQUIRE_FALSE(h.queue_state->paused);
    h.LeaderLosesPeer("all-reduce 7: deadline of 30s is over, waiting for rank 1");
    if (h.is_supervised) {  // rank 1 was evicted
      h.Exit(1, 101 + i, LossCause::kEnded);
      h.Exit(0, 17 + i, LossCause::kPeerGone);
    }
  }
  CHECK(h.queue_state->trouble == GroupTrouble::kDegraded);
  CHECK(h.queue_state->reason ==
        "worker died 2 times in 10 minutes, last: rank 0: all-reduce 7: deadline of 30s is over, "
        "waiting for rank 1" +
            std::string(h.is_supervised ? "; next try in 1 s" : "; waiting for 2 of 2 ranks"));
}

TEST_CASE("Ranks: a loss that is explained later is one death, that of the rank that died",
          "[core]") {
  RanksHarness h;
  h.AttachBoth();
  h.LeaderLosesPeer();
  CHECK(h.queue_state->reason == "waiting for 2 of 2 ranks; the last one: rank 0: rank 1 is gone");
  h.Exit(1, 101, LossCause::kCrashed);
  CHECK(h.queue_state->reason == "waiting for 2 of 2 ranks; the last one: rank 1: signal 11");
  CHECK(h.queue_state->trouble == GroupTrouble::kNone);
}

TEST_CASE("Ranks: without parents, those that lose each other are no crash, unless one is away",
          "[core]") {
  RanksHarness h;
  h.is_supervised = false;
  h.AttachBoth();
  const std::string a = h.NewModel(h.NewSession(SessionOrdering::kSerial, "a"), 0, "a");
  const std::string b = h.NewModel(h.NewSession(SessionOrdering::kSerial, "b"), 0, "b");
  const CallId of_a = h.Train(a, 1, OperationKind::kForwardBackward, "", "a");
  const CallId of_b = h.Train(b, 1, OperationKind::kForwardBackward, "", "b");
  h.Post(WorkerStarted{"g", h.worker->epoch(), {h.AnswerTo(of_a).id, h.AnswerTo(of_b).id}});
  const bool is_away = GENERATE(true, false);
  if (is_away) h.DetachPeer();
  h.LeaderLosesPeer();
  h.AttachWorker("q0");
  h.AttachPeer({"q1", 1, 102});
  h.RunWorkerOnce();  // each run restores a model
  h.RunWorkerOnce();
  h.RunWorkerOnce();
  h.RunWorkerOnce();
  size_t most = 0;  // largest number of batches
  for (const SendTrainBatch& batch : h.worker->Received<SendTrainBatch>()) {
    most = std::max(most, h.worker->Received<SendTrainBatch>().size());
    CHECK(batch.items.size() == 1);
  }
  CHECK(most == (is_away ? 1 : 2));  // quarantined requests run alone
}

TEST_CASE("Ranks: those that are left when one ends in good order have time to do so too",
          "[core]") {
  RanksHarness h(3);
  h.AttachWorker("p0");
  h.AttachPeer({"p1", 1, 101});
  h.AttachPeer({"p2", 2, 102});
  SECTION("and are evicted when it is over") {
    h.DetachPeer(1, /*process_gone=*/true, LossCause::kEnded);
    h.Advance(9 * kSecond);
    CHECK(h.RanksCommanded<SendDie>().empty());
    h.Advance(2 * kSecond);
    CHECK(h.RanksCommanded<SendDie>() == Ranks{0, 2});
  }
  SECTION("or when its successor is there") {
    h.DetachPeer(1, /*process_gone=*/true, LossCause::kEnded);
    h.AttachPeer({"p1b", 1, 103});
    CHECK(h.RanksCommanded<SendDie>() == Ranks{0, 2});
  }
  SECTION("and their own ends are no deaths") {
    h.DetachPeer(1, /*process_gone=*/true, LossCause::kEnded);
    h.LeaderLosesPeer();
    h.DetachPeer(2, /*process_gone=*/true, LossCause::kPeerGone);
    h.Advance(11 * kSecond);
    CHECK(h.RanksCommanded<SendDie>().empty());
    CHECK(h.queue_state->reason == "waiting for 3 of 3 ranks");
  }
  SECTION("though the process that ended comes again") {  // another process with that pid ended
    h.DetachPeer(1, /*process_gone=*/true, LossCause::kEnded);
    Peer again = h.PeerOf("p1");
    again.rank = 1;
    h.AttachPeer(again);
    CHECK(h.RanksCommanded<SendDie>() == Ranks{0, 1, 2});
  }
  CHECK(h.NumDeaths() == 0);
}

TEST_CASE("Ranks: those that were lost unseen, and say that they lost each other, count once",
          "[core]") {
  RanksHarness h;
  const bool was_stopped = GENERATE(false, true);
  for (int64_t i = 0; i < 2; ++i) {
    h.pid = 17 + i;
    h.AttachWorker("p0-" + std::to_string(i));
    h.AttachPeer({"p1-" + std::to_string(i), 1, 101 + i});
    h.DetachWorker();
    h.DetachPeer();
    h.Advance(16 * kSecond);  // longer than worker_lost_timeout
    h.Exit(1, 101 + i, was_stopped ? LossCause::kEnded : LossCause::kPeerGone);
    h.Exit(0, 17 + i, LossCause::kPeerGone);
  }
  CHECK(h.queue_state->trouble == (was_stopped ? GroupTrouble::kNone : GroupTrouble::kDegraded));
}

TEST_CASE("Ranks: the end of one that came later is not that of the set that was lost", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string a = h.NewModel(h.NewSession(SessionOrdering::kSerial, "a"), 0, "a");
  const std::string b = h.NewModel(h.NewSession(SessionOrdering::kSerial, "b"), 0, "b");
  const CallId of_a = h.Train(a, 1, OperationKind::kForwardBackward, "", "a");
  const CallId of_b = h.Train(b, 1, OperationKind::kForwardBackward, "", "b");
  h.Post(WorkerStarted{"g", h.worker->epoch(), {h.AnswerTo(of_a).id, h.AnswerTo(of_b).id}});
  h.DetachWorker();
  h.DetachPeer();
  h.AttachPeer({"p1b", 1, 102});
  h.Exit(1, 102, LossCause::kCrashed);  // before rank 0 attached
  h.Advance(16 * kSecond);
  h.DetachPeer();
  CHECK(h.NumDeaths() == 1);
  h.AttachWorker("q0");
  h.AttachPeer({"q1", 1, 103});
  for (int i = 0; i < 4; ++i) h.RunWorkerOnce();            // each run restores a model
  CHECK(h.worker->Received<SendTrainBatch>().size() == 2);  // no request is quarantined
}

}  // namespace
}  // namespace lathe::engine
