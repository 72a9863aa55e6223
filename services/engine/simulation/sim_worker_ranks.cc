// Rendezvous and loss of the ranks of a group.
#include <algorithm>
#include <vector>

#include "services/engine/simulation/sim_worker.h"

namespace lathe::engine::simulation {
namespace {

// Time that ranks wait for the others to join.
constexpr int64_t kPatience = 60 * kSecond;

}  // namespace

void SimWorker::JoinRendezvous(const RendezvousPoint& rendezvous) {
  if (session_ == rendezvous.session) return;
  if (!session_.empty()) {
    throw Violation("I4",
                    counting_.process_id() + " has joined its peers and is sent to other ones");
  }
  session_ = rendezvous.session;
  std::vector<SimWorker*>& peers = world_.rendezvous_points[session_];
  peers.push_back(this);
  const auto num_peers = static_cast<int64_t>(peers.size());
  if (std::any_of(peers.begin(), peers.end(), [](const SimWorker* one) { return one->is_dead_; })) {
    world_.time.After(world_.Delay(kPatience), [this] { LeaveWithPeers(); });
  } else if (num_peers == world_.swarm.num_ranks) {
    for (SimWorker* const peer : peers) {
      if (peer->rank_ == 0) peer->Load();
    }
  }
}

std::vector<SimWorker*> SimWorker::Peers() const {
  const auto met = world_.rendezvous_points.find(session_);
  return met == world_.rendezvous_points.end() ? std::vector<SimWorker*>() : met->second;
}

bool SimWorker::HasPeers() const {
  if (world_.swarm.num_ranks == 1) return true;
  const std::vector<SimWorker*> peers = Peers();
  return static_cast<int64_t>(peers.size()) == world_.swarm.num_ranks &&
         std::none_of(peers.begin(), peers.end(),
                      [](const SimWorker* one) { return one->is_dead_; });
}

bool SimWorker::AwaitsPeers() const {
  const std::vector<SimWorker*> peers = Peers();
  return static_cast<int64_t>(peers.size()) < world_.swarm.num_ranks &&
         world_.swarm.num_ranks > 1 &&
         std::none_of(peers.begin(), peers.end(),
                      [](const SimWorker* one) { return one->is_dead_; });
}

int64_t SimWorker::HeldUpUntil() const {
  int64_t until = hung_until_;
  for (const SimWorker* const peer : Peers()) until = std::max(until, peer->hung_until_);
  return until;
}

SimWorker& SimWorker::AnyPeer() {
  const std::vector<SimWorker*> peers = Peers();
  if (peers.empty()) return *this;
  const auto num_peers = static_cast<int64_t>(peers.size());
  return *peers[static_cast<size_t>(world_.random.Below(num_peers))];
}

void SimWorker::NotifyPeers() {
  const std::vector<SimWorker*> peers = Peers();
  const bool all_came = static_cast<int64_t>(peers.size()) == world_.swarm.num_ranks;
  for (SimWorker* const peer : peers) {
    world_.time.After(world_.Delay(all_came ? world_.swarm.max_notice : kPatience),
                      [peer] { peer->LeaveWithPeers(); });
  }
}

void SimWorker::Disagree() {
  if (HasPeers()) NotifyPeers();
}

void SimWorker::LeaveWithPeers() {
  if (is_dead_) return;
  if (!is_hung()) return Die(LossCause::kPeerGone, /*says_why=*/world_.random.Chance(500));
  world_.time.After(hung_until_ - world_.time.now(), [this] { LeaveWithPeers(); });
}

}  // namespace lathe::engine::simulation
