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

// Tells each leader, some time after it began to lead, how the last worker of each group ended;
// then how others end, soon or late.
class SimSupervisor {
 public:
  SimSupervisor(World& world, std::function<SimEngine*()> leader)
      : world_(world), leader_(std::move(leader)) {}

  void Start(const std::string& group, int64_t rank);
  void OnExit(const std::string& group, int64_t rank, int64_t pid, LossCause cause);

 private:
  void FollowLeader();
  void Tell(const WorkerExited& exit);

  World& world_;
  const std::function<SimEngine*()> leader_;
  SimEngine* told_ = nullptr;  // the leader it is attached to
  // The last of each rank of a group; pid 0: none yet.
  std::map<std::pair<std::string, int64_t>, WorkerExited> exits_;
};

}  // namespace lathe::engine::simulation
