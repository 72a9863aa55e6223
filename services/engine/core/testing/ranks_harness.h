// A core with one group of several ranks. Rank 0 is the harness's worker; a test posts the events
// of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/engine/core/testing/core_harness.h"

namespace lathe::engine {

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
  // Attaches both ranks of a group of two.
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

  // Rank 0 leaves because another rank has gone.
  void LeaderLosesPeer(const std::string& how = "rank 1 is gone") {
    Post(WorkerDetached{"g", true, LossCause::kPeerGone, how, 0});
  }

  template <typename Command>
  std::vector<int64_t> RanksCommanded() const {
    std::vector<int64_t> ranks;
    for (const SendToWorker& send : to_ranks) {
      if (std::holds_alternative<Command>(send.command)) ranks.push_back(send.rank);
    }
    return ranks;
  }
  size_t NumForms() const { return worker->Received<FormGroup>().size(); }
  // The peer state after the last FormGroup command to a rank.
  Peer PeerOf(const std::string& process_id) const {
    for (auto it = to_ranks.rbegin(); it != to_ranks.rend(); ++it) {
      const auto* const form = std::get_if<FormGroup>(&it->command);
      if (form != nullptr) return {process_id, it->rank, 101, form->rendezvous->session, it->epoch};
    }
    return {process_id};
  }
  int64_t NumDeaths() const {
    int64_t deaths = 0;
    for (const Action& action : actions) {
      const auto* const lost = std::get_if<RecordWorkerLost>(&action);
      const bool is_death = lost != nullptr && lost->cause != LossCause::kUnknown &&
                            lost->cause != LossCause::kEnded && lost->cause != LossCause::kPeerGone;
      deaths += is_death ? 1 : 0;
    }
    return deaths;
  }
};

}  // namespace lathe::engine
