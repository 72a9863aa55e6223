// The parent of all workers of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "services/engine/simulation/sim_engine.h"
#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

// Reports the last exit of each rank to each new leader, with a delay. Then reports further exits,
// with a short or long delay.
class SimSupervisor {
 public:
  SimSupervisor(World& world, std::function<SimEngine*()> leader)
      : world_(world), leader_(std::move(leader)) {}

  void Start(const std::string& group, int64_t rank);
  void OnExit(const std::string& group, int64_t rank, int64_t pid, LossCause cause);

 private:
  void FollowLeader();
  void Report(const WorkerExited& exit);

  World& world_;
  const std::function<SimEngine*()> leader_;
  SimEngine* reported_ = nullptr;  // leader with which it is connected
  // Last exit of each rank of a group; pid 0: none yet.
  std::map<std::pair<std::string, int64_t>, WorkerExited> exits_;
};

}  // namespace lathe::engine::simulation
