// Groups of several ranks. Rank 0 is the harness's worker; tests post the events of the others.
#include "services/engine/core/groups/ranks.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/ranks_harness.h"

namespace lathe::engine {
namespace {

using Ranks = std::vector<int64_t>;

TEST_CASE("Ranks: a group is formed when all of them have come", "[core]") {
  RanksHarness h(3);
  h.AttachWorker("p0");
  h.AttachPeer({"p2", 2});
  CHECK(h.NumForms() == 0);
  CHECK(h.queue_state->paused);
  CHECK(h.queue_state->reason == "waiting for rank 1 of 3");
  h.AttachPeer({"p1", 1});
  REQUIRE(h.NumForms() == 1);
  CHECK(h.RanksCommanded<FormGroup>() == Ranks{1, 2});
  const std::optional<RendezvousPoint> rendezvous =
      h.worker->Received<FormGroup>().front().rendezvous;
  REQUIRE(rendezvous.has_value());
  CHECK(rendezvous->address == "10.0.0.1");
  CHECK(rendezvous->port == 4000);
  for (const SendToWorker& send : h.to_ranks) {
    CHECK(std::get<FormGroup>(send.command).rendezvous->session == rendezvous->session);
  }
}

TEST_CASE("Ranks: a group of one has no rendezvous", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  CHECK_FALSE(h.worker->Received<FormGroup>().front().rendezvous.has_value());
  CHECK(h.to_ranks.empty());
}

TEST_CASE("Ranks: what became ready while its peers are waited for is used", "[core]") {
  RanksHarness h;
  h.AttachWorker("p0", /*ready=*/false);
  h.Post(WorkerReady{"g", *h.worker->Hello().ready});
  CHECK(h.queue_state->paused);
  h.AttachPeer({"p1"});
  CHECK_FALSE(h.queue_state->paused);
}

TEST_CASE("Ranks: a new engine adopts a group once all of it is there", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  h.Gradient(model, 1);
  h.RunWorker();
  const Peer peer = h.PeerOf("p1");
  h.RestartEngine();
  h.to_ranks.clear();
  h.AttachPeer(peer);
  h.ReattachWorker();
  CHECK(h.worker->Received<AdoptGroup>().size() == 1);
  CHECK(h.RanksCommanded<AdoptGroup>() == Ranks{1});
  const CallId step = h.Step(model, 2);
  h.RunWorker();
  CHECK(h.StateOf(step) == RequestState::kDone);
  CHECK(h.worker->History(model) == std::vector<std::string>{"fb 1", "step 2 [1]"});
}

TEST_CASE("Ranks: a stream that breaks holds up nothing", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  h.DetachPeer();
  const CallId gradient = h.Gradient(model, 1);
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
  h.AttachPeer(h.PeerOf("p1"));
  CHECK(h.RanksCommanded<AdoptGroup>() == Ranks{1});
  CHECK(h.RanksCommanded<SendDie>().empty());
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: one that missed its Form gets it again, with the same peers", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  h.DetachPeer();
  h.AttachPeer({"p1"});
  CHECK(h.RanksCommanded<FormGroup>() == Ranks{1, 1});
  CHECK(std::get<FormGroup>(h.to_ranks[0].command).rendezvous->session ==
        std::get<FormGroup>(h.to_ranks[1].command).rendezvous->session);
  CHECK(h.to_ranks[0].epoch == h.to_ranks[1].epoch);
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: with one of them the group is lost, and the others are evicted", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  h.Gradient(model, 1);
  SECTION("a process that is declared dead") {
    h.DetachPeer(1, /*process_gone=*/true, LossCause::kSilent);
  }
  SECTION("one that ended") {
    h.DetachPeer();
    h.Exit(1, 101, LossCause::kCrashed);
  }
  SECTION("one that ended, before its stream did") {
    h.Exit(1, 101, LossCause::kCrashed);
    CHECK(h.RanksCommanded<SendDie>().empty());
    h.DetachPeer();
  }
  SECTION("one that stays away") {
    h.DetachPeer();
    h.Advance(14 * kSecond);
    CHECK(h.RanksCommanded<SendDie>().empty());
    h.Advance(2 * kSecond);
  }
  SECTION("one whose place another process takes") {
    h.DetachPeer();
    h.AttachPeer({"p1b", 1, 102});
  }
  CHECK(h.RanksCommanded<SendDie>() == Ranks{0});
  CHECK(h.queue_state->paused);
}

TEST_CASE("Ranks: reports of rank 0 after the loss of a peer are ignored", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  const CallId gradient = h.Gradient(model, 1);
  h.worker->RunOne();
  h.DetachPeer(1, /*process_gone=*/true, LossCause::kSilent);
  for (EventBody& report : h.worker->TakeReports()) h.Post(std::move(report));
  CHECK_FALSE(h.Done(gradient));
  h.AttachWorker("p0b");
  h.AttachPeer({"p1b", 1, 102});
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
}

TEST_CASE("Ranks: a rank of another set is not formed again but evicted", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const Peer old = h.PeerOf("p1");
  h.RestartEngine();
  h.to_ranks.clear();
  h.AttachPeer(old);
  h.AttachWorker("p0b");
  CHECK(h.NumForms() == 0);
  CHECK(h.RanksCommanded<SendDie>() == Ranks{1});
  CHECK(h.to_ranks.front().stream_id == 0);
  h.AttachPeer({"p1b", 1, 102});
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: a set that was declared dead and returns complete forms again under its session",
          "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const Peer peer = h.PeerOf("p1");
  h.DetachPeer();
  h.DetachWorker();
  h.Advance(16 * kSecond);
  h.to_ranks.clear();
  h.ReattachWorker();
  h.AttachPeer(peer);
  CHECK(h.RanksCommanded<SendDie>().empty());
  CHECK(h.NumForms() == 2);
  CHECK(h.PeerOf("p1").session == peer.session);
  CHECK(h.PeerOf("p1").epoch == peer.epoch + 1);
}

TEST_CASE("Ranks: a group that comes with another mesh is another one", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const std::string model = h.NewModel(h.NewSession());
  h.DetachPeer();
  h.DetachWorker();
  h.mesh.dp = 2;
  h.AttachWorker("q0");
  h.AttachPeer({"q1", 1, 201});
  h.AttachPeer({"q2", 2, 202});
  CHECK(h.queue_state->reason == "waiting for rank 3 of 4");
  h.AttachPeer({"q3", 3, 203});
  CHECK(h.NumForms() == 1);
  const CallId gradient = h.Gradient(model, 1);
  h.RunWorker();
  CHECK(h.StateOf(gradient) == RequestState::kDone);
}

}  // namespace
}  // namespace lathe::engine
