#include "services/engine/simulation/sim_supervisor.h"

#include <utility>

namespace lathe::engine::simulation {

void SimSupervisor::Start(const std::string& group, int64_t rank) {
  if (!world_.swarm.is_supervised) return;
  if (exits_.empty()) FollowLeader();
  exits_[{group, rank}].group = group;
}

void SimSupervisor::FollowLeader() {
  world_.time.After(world_.Delay(kSecond), [this] {
    SimEngine* const leader = leader_();
    if (leader != reported_ && leader->is_up()) {
      reported_ = leader;
      for (const auto& [rank, exit] : exits_) {
        if (exit.pid != 0) leader->OnSupervisor(exit);
      }
    }
    FollowLeader();
  });
}

void SimSupervisor::OnExit(const std::string& group, int64_t rank, int64_t pid, LossCause cause) {
  if (!world_.swarm.is_supervised) return;
  const WorkerExited exit{.group = group,
                          .pid = pid,
                          .cause = cause,
                          .how = cause == LossCause::kCrashed ? "signal 11" : "signal 9",
                          .restart_in = kSecond,
                          .rank = rank};
  exits_[{group, rank}] = exit;
  world_.time.After(world_.Delay(world_.swarm.max_exit_delay), [this, exit] {
    if (reported_ != nullptr) reported_->OnSupervisor(exit);
  });
}

}  // namespace lathe::engine::simulation
