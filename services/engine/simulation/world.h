// State that all actors of one run share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "services/engine/simulation/random.h"
#include "services/engine/simulation/seeded_bugs.h"
#include "services/engine/simulation/sim_store.h"
#include "services/engine/simulation/swarm.h"
#include "services/engine/simulation/timeline.h"
#include "services/engine/simulation/trace.h"
#include "services/engine/testing/worker_disk.h"

namespace lathe::engine::simulation {

class SimWorker;

// Violation of an invariant in the table of docs/reliability.md.
class Violation : public std::runtime_error {
 public:
  // `invariant`: "I1" … "I7".
  Violation(const std::string& invariant, const std::string& what)
      : std::runtime_error(invariant + ": " + what) {}
};

struct World {
  World(uint64_t seed, SeededBug bug_in, size_t max_trace_lines)
      : random(Mix(seed, /*word=*/1)),
        swarm(DrawSwarm(seed)),
        bug(bug_in),
        trace(max_trace_lines),
        store(/*is_fenced=*/bug_in != SeededBug::kNoTermCheck) {}

  // Unix time in nanoseconds, as the processes see it.
  int64_t Now() const { return kEpoch + time.now(); }
  // A random delay of a message, commit or operation.
  int64_t Delay(int64_t longest) { return 1 + random.Below(longest); }
  // Ends the faults.
  void Heal();

  static constexpr int64_t kEpoch = 1'700'000'000 * kSecond;

  Timeline time;
  Random random;
  Swarm swarm;
  const SeededBug bug;
  Trace trace;
  WorkerDisk disk;
  SimStore store;
  bool is_healed = false;
  int64_t last_process = 0;  // number of the newest engine or worker
  // Files that each load of a training run read, by request id.
  std::map<std::string, CheckpointFiles> loaded;
  // Steps before which a worker lost a gradient.
  std::set<std::string> set_back;
  // Sessions whose silence may have been long enough to drop their gradients.
  std::set<std::string> silent_sessions;
  // Workers that joined each rendezvous session, in order of arrival, including dead ones.
  std::map<std::string, std::vector<SimWorker*>> rendezvous_points;
  // The newest process of rank 0, by group. Other groups read versions from it.
  std::map<std::string, const SimWorker*> sources;
  // Number of workers that each request has killed, by request id.
  std::map<std::string, int64_t> kills;
  // True if a worker died or was declared dead, so state that only it held may be lost.
  bool lost_worker = false;
};

// Time without a sign of life after which a peer is declared dead.
inline constexpr int64_t kSilence = 15 * kSecond;

// Returns the delay of the next message on a link that keeps its order. `last` is the arrival time
// of the last message and is updated.
inline int64_t ArrivalAfter(World& world, int64_t& last) {
  last = std::max(last, world.time.now() + world.Delay(world.swarm.max_delay));
  return last - world.time.now();
}

}  // namespace lathe::engine::simulation
