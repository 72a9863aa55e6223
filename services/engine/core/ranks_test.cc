// Groups of several ranks. Rank 0 is the harness's worker; the others are what they say.
#include "services/engine/core/ranks.h"

#include <catch2/catch.hpp>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {
namespace {

struct Peer {
  std::string process_id;
  int64_t rank = 1;
  int64_t pid = 101;
  std::string session;
  int64_t epoch = 0;
};

class RanksHarness : public CoreHarness {
 public:
  explicit RanksHarness(int64_t tp = 2) : CoreHarness(Options()) {
    mesh.tp = tp;
    is_supervised = true;
  }

  static CoreOptions Options() {
    CoreOptions options;
    options.crash_loop_deaths = 2;
    return options;
  }

  void AttachPeer(const Peer& peer) {
    WorkerAttached hello;
    hello.group = "g";
    hello.process_id = peer.process_id;
    hello.base_model = "base";
    hello.rank = peer.rank;
    hello.mesh = mesh;
    hello.pid = peer.pid;
    hello.session = peer.session;
    hello.epoch = peer.epoch;
    hello.is_supervised = is_supervised;
    Post(hello);
  }
  // Of two, that work.
  void AttachBoth(const std::string& leader = "p0", const std::string& peer = "p1") {
    AttachWorker(leader);
    AttachPeer({peer});
  }
  void DetachPeer(int64_t rank = 1, bool process_gone = false,
                  LossCause cause = LossCause::kUnknown) {
    Post(WorkerDetached{"g", process_gone, cause, "peer's end", rank});
  }
  void Exit(int64_t rank, int64_t exit_pid, LossCause cause) {
    Post(WorkerExited{"g", exit_pid, cause, "signal 11", kSecond, rank});
  }

  template <typename Command>
  std::vector<int64_t> RanksTold() const {
    std::vector<int64_t> ranks;
    for (const SendToWorker& send : to_ranks) {
      if (std::holds_alternative<Command>(send.command)) ranks.push_back(send.rank);
    }
    return ranks;
  }
  size_t NumForms() const { return worker->Received<FormGroup>().size(); }
  // As the rank that was told last would say it.
  Peer Told(const std::string& process_id) const {
    for (auto it = to_ranks.rbegin(); it != to_ranks.rend(); ++it) {
      const auto* const form = std::get_if<FormGroup>(&it->command);
      if (form != nullptr) return {process_id, it->rank, 101, form->meeting->session, it->epoch};
    }
    return {process_id};
  }
  int64_t NumDeaths() const {
    int64_t deaths = 0;
    for (const Action& action : actions) {
      const auto* const lost = std::get_if<NoteWorkerLost>(&action);
      const bool is_death = lost != nullptr && lost->cause != LossCause::kUnknown &&
                            lost->cause != LossCause::kEnded && lost->cause != LossCause::kPeerGone;
      deaths += is_death ? 1 : 0;
    }
    return deaths;
  }
};

using Told = std::vector<int64_t>;

TEST_CASE("Ranks: a group is formed when all of them have come", "[core]") {
  RanksHarness h(3);
  h.AttachWorker("p0");
  h.AttachPeer({"p2", 2});
  CHECK(h.NumForms() == 0);
  CHECK(h.queue_state->paused);
  CHECK(h.queue_state->reason == "waiting for rank 1 of 3");
  h.AttachPeer({"p1", 1});
  REQUIRE(h.NumForms() == 1);
  CHECK(h.RanksTold<FormGroup>() == Told{1, 2});
  const std::optional<Meeting> meeting = h.worker->Received<FormGroup>().front().meeting;
  REQUIRE(meeting.has_value());
  CHECK(meeting->address == "10.0.0.1");
  CHECK(meeting->port == 4000);
  for (const SendToWorker& send : h.to_ranks) {
    CHECK(std::get<FormGroup>(send.command).meeting->session == meeting->session);
  }
}

TEST_CASE("Ranks: one that is alone meets nobody", "[core]") {
  CoreHarness h;
  h.AttachWorker();
  CHECK_FALSE(h.worker->Received<FormGroup>().front().meeting.has_value());
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
  const Peer peer = h.Told("p1");
  h.RestartEngine();
  h.to_ranks.clear();
  h.AttachPeer(peer);
  h.ReattachWorker();
  CHECK(h.worker->Received<AdoptGroup>().size() == 1);
  CHECK(h.RanksTold<AdoptGroup>() == Told{1});
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
  h.AttachPeer(h.Told("p1"));
  CHECK(h.RanksTold<AdoptGroup>() == Told{1});
  CHECK(h.RanksTold<SendDie>().empty());
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: one that missed its Form is told again, and meets the same peers", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  h.DetachPeer();
  h.AttachPeer({"p1"});
  CHECK(h.RanksTold<FormGroup>() == Told{1, 1});
  CHECK(std::get<FormGroup>(h.to_ranks[0].command).meeting->session ==
        std::get<FormGroup>(h.to_ranks[1].command).meeting->session);
  CHECK(h.to_ranks[0].epoch == h.to_ranks[1].epoch);
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: with one of them the group is lost, and the others are told to die", "[core]") {
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
    CHECK(h.RanksTold<SendDie>().empty());
    h.DetachPeer();
  }
  SECTION("one that stays away") {
    h.DetachPeer();
    h.Advance(14 * kSecond);
    CHECK(h.RanksTold<SendDie>().empty());
    h.Advance(2 * kSecond);
  }
  SECTION("one whose place another process takes") {
    h.DetachPeer();
    h.AttachPeer({"p1b", 1, 102});
  }
  CHECK(h.RanksTold<SendDie>() == Told{0});
  CHECK(h.queue_state->paused);
}

TEST_CASE("Ranks: what a leader says whose peer is lost is not heard", "[core]") {
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

TEST_CASE("Ranks: who has met others is not formed again, and told to die", "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const Peer old = h.Told("p1");
  h.RestartEngine();
  h.to_ranks.clear();
  h.AttachPeer(old);
  h.AttachWorker("p0b");
  CHECK(h.NumForms() == 0);
  CHECK(h.RanksTold<SendDie>() == Told{1});
  CHECK(h.to_ranks.front().stream_id == 0);
  h.AttachPeer({"p1b", 1, 102});
  CHECK(h.NumForms() == 1);
}

TEST_CASE("Ranks: a set that was given up and comes back whole meets again under its session",
          "[core]") {
  RanksHarness h;
  h.AttachBoth();
  const Peer peer = h.Told("p1");
  h.DetachPeer();
  h.DetachWorker();
  h.Advance(16 * kSecond);
  h.to_ranks.clear();
  h.ReattachWorker();
  h.AttachPeer(peer);
  CHECK(h.RanksTold<SendDie>().empty());
  CHECK(h.NumForms() == 2);
  CHECK(h.Told("p1").session == peer.session);
  CHECK(h.Told("p1").epoch == peer.epoch + 1);
}

TEST_CASE("Ranks: the crash of one is laid to what ran, and counted once", "[core]") {
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
    const auto crash = [&] {
      h.DetachPeer();
      h.Exit(1, peer_pid, LossCause::kCrashed);
    };
    const auto leave = [&] {
      h.Post(WorkerDetached{"g", true, LossCause::kPeerGone, "rank 1 is gone", 0});
    };
    if (i % 2 == 0) {  // whichever is heard of first
      crash();
      leave();
    } else {
      leave();
      crash();
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
        "the worker died 2 times while it ran this request alone (signal 11)");
}

TEST_CASE("Ranks: who leaves because a peer was stopped has crashed nothing", "[core]") {
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

TEST_CASE("Ranks: one that dies while its peers are waited for counts", "[core]") {
  RanksHarness h;
  for (int64_t i = 0; i < 2; ++i) {
    h.AttachPeer({"p1-" + std::to_string(i), 1, 101 + i});
    h.Exit(1, 101 + i, LossCause::kCrashed);
    h.DetachPeer();
  }
  CHECK(h.NumDeaths() == 2);
  CHECK(h.queue_state->trouble == GroupTrouble::kDegraded);
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
