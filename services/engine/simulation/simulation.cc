#include "services/engine/simulation/simulation.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/engine/simulation/oracle.h"
#include "services/engine/simulation/sim_client.h"
#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/sim_operator.h"
#include "services/engine/simulation/sim_supervisor.h"
#include "services/engine/simulation/sim_worker.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {
namespace {

constexpr int64_t kMaxChaos = 900 * kSecond;  // clients end before that or are stopped
constexpr int64_t kMaxDrain = 900 * kSecond;  // I7: limit after the faults are over

class Simulation {
 public:
  explicit Simulation(const RunOptions& options)
      : world_(options.seed, options.bug, options.max_trace_lines),
        supervisor_(world_, [this] { return &leader(); }),
        operator_(world_, [this] { return &leader(); }) {
    world_.lost_worker = world_.swarm.may_lose_workers();
  }

  void Run();
  const World& world() const { return world_; }

 private:
  void StartEngine();
  void StartWorker(const std::string& group, int64_t rank);
  void RespawnWorker(const std::string& group, int64_t rank);
  GroupRole RoleOf(const std::string& group) const;
  SimEngine* FindEngine();
  SimEngine& leader() { return *engines_.back(); }

  // Plans `fault` repeatedly while there are faults. `every` 0: never.
  void Repeat(int64_t every, const std::function<void()>& fault);
  void PlanFaults();
  void KillEngine();
  void Supervise();
  void FreezeEngine();
  SimWorker& AnyWorker();
  void KillWorker();
  void HangWorker();
  void StopWorker();
  void Disagree();
  void CutLink();
  void BlackHole();
  void LoseVersion();
  void RemoveGroup();
  std::string AnyGroup(int64_t num_groups);
  // Ends all ranks of a group for `away`.
  void TakeAway(const std::string& group, int64_t away);
  void BeginOutage();
  void ChangeRole();
  bool IsGone(const std::string& group) const { return group == gone_; }

  void Heal();
  // Runs until `is_over`, checked about once a second. Returns false if `limit` is reached.
  bool RunUntil(int64_t limit, const std::function<bool()>& is_over);
  void RunFor(int64_t duration);
  bool ClientsHaveActed() const;
  std::string OpenWork() const;
  void CheckModelsAtRest();
  void CheckUsageAtRest();
  void CheckHeld();
  // Checks that only the worker of its group holds a model.
  void CheckOnlyHomesHold() const;
  const CountingAdapter* FindLive(const std::string& model_id) const;

  World world_;
  SimSupervisor supervisor_;
  SimOperator operator_;
  std::vector<std::unique_ptr<SimEngine>> engines_;
  std::vector<std::unique_ptr<SimWorker>> all_workers_;
  std::map<std::pair<std::string, int64_t>, SimWorker*> workers_;  // by group and rank
  std::vector<std::unique_ptr<SimClient>> clients_;
  std::string gone_;                           // lost group; empty: none
  std::map<std::string, int64_t> away_until_;  // groups in an outage
};

void Simulation::StartEngine() { engines_.push_back(std::make_unique<SimEngine>(world_)); }

void Simulation::StartWorker(const std::string& group, int64_t rank) {
  all_workers_.push_back(std::make_unique<SimWorker>(
      world_, group, RoleOf(group), rank, [this] { return FindEngine(); },
      [this, group, rank](LossCause cause) {
        supervisor_.OnExit(group, rank, workers_.at({group, rank})->pid(), cause);
        RespawnWorker(group, rank);
      }));
  supervisor_.Start(group, rank);
  workers_[{group, rank}] = all_workers_.back().get();
}

GroupRole Simulation::RoleOf(const std::string& group) const {
  return world_.swarm.roles.at(static_cast<size_t>(group.at(1) - '0'));
}

// Some ranks of a group start long after their peers.
void Simulation::RespawnWorker(const std::string& group, int64_t rank) {
  const bool is_late = world_.swarm.num_ranks > 1 && world_.random.Chance(100);
  const int64_t away = std::max<int64_t>(0, away_until_[group] - world_.time.now());
  world_.time.After(away + world_.Delay((is_late ? 60 : 5) * kSecond), [this, group, rank] {
    if (!IsGone(group)) StartWorker(group, rank);
  });
}

// Mostly the newest engine; an older one that is not known to be dead may answer too.
SimEngine* Simulation::FindEngine() {
  SimEngine* const newest = engines_.back().get();
  if (world_.is_healed || world_.random.Chance(850)) return newest->is_dead() ? nullptr : newest;
  SimEngine* const any =
      engines_[static_cast<size_t>(world_.random.Below(static_cast<int64_t>(engines_.size())))]
          .get();
  return any->is_dead() ? nullptr : any;
}

// ---- faults

void Simulation::Repeat(int64_t every, const std::function<void()>& fault) {
  if (every == 0) return;
  world_.time.After(world_.Delay(2 * every), [this, every, fault] {
    if (world_.is_healed) return;
    fault();
    Repeat(every, fault);
  });
}

void Simulation::PlanFaults() {
  const Swarm& swarm = world_.swarm;
  Repeat(swarm.engine_kill_every, [this] { KillEngine(); });
  Repeat(swarm.engine_freeze_every, [this] { FreezeEngine(); });
  Repeat(swarm.worker_kill_every, [this] { KillWorker(); });
  Repeat(swarm.worker_hang_every, [this] { HangWorker(); });
  Repeat(swarm.worker_stop_every, [this] { StopWorker(); });
  Repeat(swarm.disagree_every, [this] { Disagree(); });
  Repeat(swarm.cut_every, [this] { CutLink(); });
  Repeat(swarm.black_hole_every, [this] { BlackHole(); });
  Repeat(swarm.version_loss_every, [this] { LoseVersion(); });
  Repeat(swarm.outage_every, [this] { BeginOutage(); });
  Repeat(swarm.role_change_every, [this] { ChangeRole(); });
  Repeat(swarm.move_every, [this] { operator_.MoveAnyModel(); });
  Repeat(swarm.drain_every, [this] { operator_.DrainAnyGroup(); });
  Repeat(swarm.remove_group_every, [this] { operator_.RemoveFirstGroup(); });
  if (swarm.group_that_goes < 0) return;
  world_.time.After(world_.Delay(90 * kSecond), [this] { RemoveGroup(); });
}

void Simulation::KillEngine() { leader().Kill(); }

// Starts the next leader, whatever the death of the last one.
void Simulation::Supervise() {
  world_.time.After(world_.Delay(8 * kSecond), [this] {
    if (leader().is_dead()) StartEngine();
    Supervise();
  });
}

// Usually another engine leads before this one is thawed, and this one does not notice.
void Simulation::FreezeEngine() {
  SimEngine& engine = leader();
  if (!engine.is_up()) return;
  engine.Freeze();
  world_.trace.Log(world_.time.now(), [] { return std::string("the leader is frozen"); });
  world_.time.After(world_.Delay(40 * kSecond), [&engine] { engine.Thaw(); });
  world_.time.After(kSilence, [this, &engine] {
    for (const auto& [rank, worker] : workers_) {
      const bool is_silent =
          engine.is_frozen() && worker->link() != nullptr && worker->link()->engine == &engine;
      if (is_silent) worker->Reconnect();
    }
  });
  if (world_.random.Chance(300)) return;
  world_.time.After(world_.Delay(12 * kSecond), [this, &engine] {
    if (&leader() == &engine) StartEngine();
  });
}

SimWorker& Simulation::AnyWorker() {
  auto it = workers_.begin();
  std::advance(it, world_.random.Below(static_cast<int64_t>(workers_.size())));
  return *it->second;
}

void Simulation::KillWorker() {
  AnyWorker().Die(LossCause::kKilled);
  const bool takes_another = world_.swarm.num_ranks > 1 && world_.random.Chance(200);
  if (takes_another) AnyWorker().Die(LossCause::kKilled);
}

void Simulation::HangWorker() {
  SimWorker& worker = AnyWorker();
  if (worker.is_dead() || worker.is_hung()) return;
  worker.Hang(world_.Delay(40 * kSecond));
  world_.time.After(kSilence, [this, &worker] {
    const std::shared_ptr<Link> link = worker.link();
    if (!worker.is_hung() || link == nullptr) return;
    link->engine->OnSilent(link);
    // It may continue before the kill, and must not be obeyed then.
    if (!world_.swarm.is_supervised) return;
    world_.time.After(world_.Delay(40 * kSecond), [&worker] { worker.Die(LossCause::kEnded); });
  });
}

void Simulation::StopWorker() {
  SimWorker& one = AnyWorker();
  const bool stops_all = world_.random.Chance(500);
  for (const auto& [rank, worker] : workers_) {
    const bool is_notified = worker == &one || (stops_all && rank.first == one.group());
    if (is_notified && !worker->is_hung()) worker->Die(LossCause::kEnded, /*says_why=*/true);
  }
}

void Simulation::Disagree() {
  SimWorker& worker = AnyWorker();
  if (!worker.is_dead()) worker.Disagree();
}

void Simulation::CutLink() {
  SimWorker& worker = AnyWorker();
  const std::shared_ptr<Link> link = worker.link();
  if (link == nullptr || worker.is_dead()) return;
  if (world_.random.Chance(500)) {
    worker.Reconnect();
  } else {
    link->engine->OnClosed(link);
  }
}

void Simulation::BlackHole() {
  SimWorker& worker = AnyWorker();
  const std::shared_ptr<Link> link = worker.link();
  if (link == nullptr || worker.is_dead()) return;
  link->is_black_hole = true;
  world_.time.After(world_.Delay(kSilence), [link] { link->engine->OnSilent(link); });
  world_.time.After(world_.Delay(kSilence), [link] { link->worker->OnClosed(link); });
}

void Simulation::LoseVersion() {
  SimWorker& worker = AnyWorker();
  if (!worker.is_dead() && !worker.is_hung()) worker.LoseVersion();
}

// Removes a group whose machines do not come back.
void Simulation::RemoveGroup() {
  if (world_.is_healed) return;
  gone_ = absl::StrCat("g", world_.swarm.group_that_goes);
  world_.trace.Log(world_.time.now(), [this] { return gone_ + " is gone for good"; });
  for (const auto& [rank, worker] : workers_) {
    if (rank.first == gone_) worker->Die(LossCause::kKilled);
  }
}

std::string Simulation::AnyGroup(int64_t num_groups) {
  return absl::StrCat("g", world_.random.Below(num_groups));
}

void Simulation::TakeAway(const std::string& group, int64_t away) {
  away_until_[group] = world_.time.now() + away;
  for (const auto& [rank, worker] : workers_) {
    if (rank.first == group) worker->Die(LossCause::kKilled);
  }
}

// Usually long enough for its models to migrate.
void Simulation::BeginOutage() {
  TakeAway(AnyGroup(world_.swarm.num_groups),
           world_.Delay(2 * world_.swarm.core.group_lost_timeout));
}

void Simulation::ChangeRole() {
  constexpr GroupRole kRoles[] = {GroupRole::kBoth, GroupRole::kTrain, GroupRole::kSample};
  const std::string group = AnyGroup(world_.swarm.num_groups - 1);
  world_.swarm.roles.at(static_cast<size_t>(group.at(1) - '0')) = kRoles[world_.random.Below(3)];
  world_.trace.Log(world_.time.now(), [&] { return group + " is to do something else"; });
  TakeAway(group, 0);
}

// ---- phases

void Simulation::Heal() {
  world_.trace.Log(world_.time.now(), [] { return std::string("faults are over"); });
  world_.Heal();
  for (const auto& engine : engines_) engine->Thaw();
  for (const auto& client : clients_) client->Wind();
  if (world_.swarm.num_groups > 1) operator_.CleanUp(gone_);
}

bool Simulation::RunUntil(int64_t limit, const std::function<bool()>& is_over) {
  const int64_t end = world_.time.now() + limit;
  while (world_.time.now() < end) {
    const int64_t pause = world_.time.now() + kSecond;
    while (world_.time.RunNext(pause)) continue;
    if (is_over()) return true;
  }
  return false;
}

void Simulation::RunFor(int64_t duration) {
  RunUntil(duration, [] { return false; });
}

bool Simulation::ClientsHaveActed() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const auto& client) { return client->has_acted(); });
}

std::string Simulation::OpenWork() const {
  for (const auto& client : clients_) {
    if (!client->is_settled()) return client->OpenWork();
  }
  for (const auto& [id, history] : world_.store.history()) {
    if (history.row.done_at == 0) {
      return absl::StrFormat("request %s (%s seq %d) has not ended", id, history.row.owner_id,
                             history.row.seq_id);
    }
  }
  for (const auto& [rank, worker] : workers_) {
    const bool works = rank.second > 0 || IsGone(rank.first) || worker->is_usable();
    if (!works) return absl::StrCat("group ", rank.first, " does not work");
  }
  return "";
}

void Simulation::CheckOnlyHomesHold() const {
  for (const auto& [rank, worker] : workers_) {
    if (worker->is_dead() || !worker->is_usable()) continue;
    for (const auto& [id, row] : world_.store.models()) {
      const bool is_here = row.group == rank.first || row.state != ModelState::kReady;
      if (is_here || worker->Find(id) == nullptr) continue;
      throw Violation("I2", absl::StrCat(rank.first, " has ", id, " of group ", row.group));
    }
  }
}

const CountingAdapter* Simulation::FindLive(const std::string& model_id) const {
  const auto row = world_.store.models().find(model_id);
  const auto worker = workers_.find({row->second.group, 0});
  const bool is_there = worker != workers_.end() && !worker->second->is_dead();
  return is_there ? worker->second->Find(model_id) : nullptr;
}

// A model may be offloaded at this moment. Messages under way arrive within seconds.
void Simulation::CheckModelsAtRest() {
  constexpr int kTries = 3;
  for (int i = 1;; ++i) {
    try {
      CheckOnlyHomesHold();
      return CheckModels(world_,
                         [this](const std::string& model_id) { return FindLive(model_id); });
    } catch (const Violation&) {
      if (i == kTries) throw;
    }
    RunFor(5 * kSecond);
  }
}

// A purge may be under way at this moment: the core forgets results before the store does.
void Simulation::CheckUsageAtRest() {
  constexpr int kTries = 3;
  for (int i = 1;; ++i) {
    try {
      return leader().CheckUsageIsStored();
    } catch (const Violation&) {
      if (i == kTries) throw;
    }
    RunFor(5 * kSecond);
  }
}

void Simulation::CheckHeld() {
  CheckUsageAtRest();
  leader().CheckHoldsNothing();
  for (const auto& [rank, worker] : workers_) {
    if (!IsGone(rank.first)) worker->CheckHoldsNothing();
  }
}

void Simulation::Run() {
  StartEngine();
  for (int64_t i = 0; i < world_.swarm.num_groups * world_.swarm.num_ranks; ++i) {
    StartWorker(absl::StrCat("g", i % world_.swarm.num_groups), i / world_.swarm.num_groups);
  }
  for (int64_t i = 0; i < world_.swarm.num_clients; ++i) {
    clients_.push_back(std::make_unique<SimClient>(
        world_, i, [this] { return FindEngine(); }, clients_));
  }
  PlanFaults();
  Supervise();
  RunUntil(kMaxChaos, [this] { return ClientsHaveActed(); });
  Heal();
  if (!RunUntil(kMaxDrain, [this] { return OpenWork().empty(); })) {
    throw Violation("I7", OpenWork());
  }
  RunFor(60 * kSecond);
  for (const auto& client : clients_) {
    if (client->has_vanished() && world_.random.Chance(700)) client->ComeBack();
    client->TouchModels();
  }
  if (!RunUntil(kMaxDrain, [this] { return OpenWork().empty(); })) {
    throw Violation("I7", OpenWork());
  }
  CheckEnded(world_);
  CheckKills(world_);
  CheckModelsAtRest();
  for (const auto& client : clients_) client->FinishSession();
  RunUntil(kMaxDrain, [this] {
    const auto& sessions = world_.store.sessions();
    return std::all_of(sessions.begin(), sessions.end(), [](const auto& entry) {
      return entry.second.state == SessionState::kEnded;
    });
  });
  RunFor(60 * kSecond);
  CheckHeld();
  // The next start of a leader deletes what a crash left.
  leader().Kill();
  StartEngine();
  RunFor(10 * kSecond);
  CheckHeld();
  CheckNothingLeaks(world_);
}

}  // namespace

RunResult RunSeed(const RunOptions& options) {
  Simulation simulation(options);
  RunResult result;
  try {
    simulation.Run();
  } catch (const Violation& violation) {
    result.violation = violation.what();
  } catch (const std::exception& error) {
    result.violation = absl::StrCat("I0: ", error.what());
  }
  const World& world = simulation.world();
  result.trace_hash = world.trace.hash();
  result.num_requests = static_cast<int64_t>(world.store.history().size());
  result.num_leaders = world.store.term();
  result.virtual_time = world.time.now();
  result.trace = world.trace.lines();
  return result;
}

}  // namespace lathe::engine::simulation
