#include "services/engine/simulation/world.h"

namespace lathe::engine::simulation {

void World::Heal() {
  is_healed = true;
  swarm.lost_request = 0;
  swarm.lost_answer = 0;
  swarm.duplicate = 0;
  swarm.store_error = 0;
  swarm.setback = 0;
  swarm.max_delay = 5 * kMillisecond;
  swarm.max_commit = 5 * kMillisecond;
  swarm.max_snapshot = 20 * kMillisecond;
  swarm.max_work = 20 * kMillisecond;
}

}  // namespace lathe::engine::simulation
