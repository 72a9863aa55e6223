// Random histories of clients, commits, worker and engine; LATHE_SEED=N repeats one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "services/engine/core/testing/core_harness.h"
#include "services/engine/ledger/gradient_window.h"

namespace lathe::engine {
namespace {

// A client program: numbers its operations, sends them again until they are answered.
class Client {
 public:
  Client(CoreHarness& h, std::string model, bool serial, std::mt19937_64& random)
      : h_(h), model_(std::move(model)), serial_(serial), random_(random) {}

  void SubmitSome() {
    if (open_.size() > 8) return;
    if (Chance(10)) ++next_seq_;  // abandoned for good
    std::vector<Operation> group;
    const int64_t size = Chance(3) ? 3 : 1;
    for (int64_t i = 0; i < size; ++i) {
      group.push_back({next_seq_++, size > 1 ? OperationKind::kForwardBackward : RandomKind()});
    }
    // Parallel chunks: the first one last.
    if (!serial_) std::rotate(group.begin(), group.begin() + 1, group.end());
    for (Operation& operation : group) {
      Send(operation);
      open_.push_back(operation);
    }
  }

  // A client that got no answer asks again; so does one that merely lost it.
  void Resend() {
    for (Operation& operation : open_) {
      if (h_.FindAnswer(operation.call) == nullptr || Chance(4)) Send(operation);
    }
  }

  void CollectAnswers() {
    for (auto it = open_.begin(); it != open_.end();) {
      const Answer* const answer = h_.FindAnswer(it->call);
      if (answer == nullptr) {
        ++it;
        continue;
      }
      if (!answer->error) accepted_[answer->id] = *it;
      it = open_.erase(it);
    }
    for (auto& [id, operation] : accepted_) {
      if (!operation.delivered && h_.done.count(id) > 0 && Chance(2)) {
        operation.delivered = true;
        h_.Post(Delivered{id});
      }
    }
  }

  bool waiting() const { return !open_.empty(); }

  // Every accepted request ended and its caller was told.
  void CheckEnded() {
    for (const auto& [id, operation] : accepted_) {
      INFO(model_ << " seq " << operation.seq);
      CHECK(h_.store.requests().at(id).done_at > 0);
      CHECK(h_.done.count(id) == 1);
    }
  }

  // The worker's history is what the accepted requests say.
  void CheckApplied() {
    std::map<int64_t, int64_t> times_added;
    int64_t last_step = 0;
    for (const std::string& line : h_.worker->History(model_)) {
      if (line.rfind("fb ", 0) == 0) ++times_added[std::stoll(line.substr(3))];
      if (line.rfind("step ", 0) != 0) continue;
      const int64_t seq = std::stoll(line.substr(5));
      CHECK(seq > last_step);
      last_step = seq;
      for (const int64_t part : DecodeSeqs(line.substr(line.find('[') + 1))) CHECK(part < seq);
    }
    for (const auto& [seq, times] : times_added) CHECK(times == 1);
    for (const auto& [id, operation] : accepted_) {
      INFO(model_ << " seq " << operation.seq);
      const RequestRow& row = h_.store.requests().at(id);
      const bool added =
          row.kind == OperationKind::kForwardBackward && row.state == RequestState::kDone;
      CHECK(times_added[operation.seq] == (added ? 1 : 0));
    }
  }

 private:
  struct Operation {
    int64_t seq = 0;
    OperationKind kind = OperationKind::kForwardBackward;
    CallId call = 0;
    bool delivered = false;
  };

  bool Chance(uint64_t one_in) { return random_() % one_in == 0; }

  OperationKind RandomKind() {
    const OperationKind kinds[] = {OperationKind::kForwardBackward, OperationKind::kForward,
                                   OperationKind::kOptimStep, OperationKind::kSaveWeights};
    return kinds[random_() % 4];
  }

  void Send(Operation& operation) {
    if (operation.kind == OperationKind::kSaveWeights) {
      operation.call =
          h_.Save(model_, operation.seq, {.name = "n", .overwrite = operation.seq % 2 == 0});
    } else {
      operation.call = h_.Train(model_, operation.seq, operation.kind);
    }
    if (operation.kind == OperationKind::kForwardBackward && Chance(8)) {
      h_.worker->FailOnce(model_, operation.seq,
                          {absl::StatusCode::kInvalidArgument, "bad", "", "bad"});
    }
  }

  CoreHarness& h_;
  const std::string model_;
  const bool serial_;
  std::mt19937_64& random_;
  int64_t next_seq_ = 1;
  std::vector<Operation> open_;
  std::map<std::string, Operation> accepted_;
};

void RandomEvent(CoreHarness& h, std::vector<Client>& clients, bool kills,
                 std::mt19937_64& random) {
  Client& client = clients[random() % clients.size()];
  if (kills && random() % 150 == 0) {
    return h.AttachWorker("p" + std::to_string(random()));
  }
  switch (random() % 12) {
    case 0:
    case 1:
    case 2:
      return client.SubmitSome();
    case 3:
      return client.Resend();
    case 4:
    case 5:
      if (h.HasCommits()) h.CommitOne();
      return;
    case 6:
    case 7:
      return h.RunWorkerOnce();
    case 8:
      return client.CollectAnswers();
    case 9:
      return h.Tick();
    case 10:
      if (random() % 8 != 0) return;
      return h.attached ? h.DetachWorker() : h.ReattachWorker();
    case 11:
      if (random() % 8 == 0) h.RestartEngine();
      return;
  }
}

void RunToTheEnd(CoreHarness& h, std::vector<Client>& clients) {
  for (int round = 0; round < 50; ++round) {
    if (!h.attached) h.ReattachWorker();
    for (Client& client : clients) client.Resend();
    h.CommitAll();
    for (Client& client : clients) client.CollectAnswers();
    h.Advance(20 * kSecond);
    h.CommitAll();
    h.RunWorker();
    h.CommitAll();
  }
}

// `kills`: the worker's process is replaced now and then; what it held is lost.
void Simulate(uint64_t seed, bool kills) {
  INFO("LATHE_SEED=" << seed);
  std::mt19937_64 random(seed);
  CoreOptions options;
  options.batch_tokens = 40;
  // The worker is slow to come back; only a new process makes it lost.
  options.worker_lost_timeout = 1'000'000 * kSecond;
  options.session_timeout = 1'000'000 * kSecond;
  CoreHarness h(options);
  h.AttachWorker();
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    const bool serial = i % 2 == 0;
    const std::string session =
        h.NewSession(serial ? SessionOrdering::kSerial : SessionOrdering::kConcurrent);
    clients.emplace_back(h, h.NewModel(session), serial, random);
  }
  h.HoldCommits();
  for (int i = 0; i < 600; ++i) RandomEvent(h, clients, kills, random);
  RunToTheEnd(h, clients);
  for (Client& client : clients) {
    CHECK_FALSE(client.waiting());
    client.CheckEnded();
    if (!kills) client.CheckApplied();
  }
  CHECK(h.worker->num_refused_steps() == 0);
  for (const auto& [id, model] : h.store.models()) {
    INFO(id << ": " << model.state_reason);
    CHECK((kills || model.state == ModelState::kReady));
  }
}

void SimulateMany(bool kills) {
  if (const char* const seed = std::getenv("LATHE_SEED")) {
    return Simulate(std::strtoull(seed, nullptr, 10), kills);
  }
  for (uint64_t seed = 1; seed <= 300; ++seed) Simulate(seed, kills);
}

TEST_CASE("Simulation: every accepted request ends and is applied once, in order", "[core]") {
  SimulateMany(/*kills=*/false);
}

TEST_CASE("Simulation: every accepted request ends although workers die", "[core]") {
  SimulateMany(/*kills=*/true);
}

}  // namespace
}  // namespace lathe::engine
