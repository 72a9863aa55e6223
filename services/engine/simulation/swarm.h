// Which faults and behaviours one seed has, and how much of each.
#pragma once

#include <cstdint>
#include <vector>

#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"
#include "services/engine/simulation/random.h"

namespace lathe::engine::simulation {

inline constexpr int64_t kMillisecond = 1'000'000;

// Chances are per mille, each of the thing it names; 0: this seed has none. Every seed leaves most
// of them out ("swarm testing", Groce et al. 2012): what is rare beside everything is common alone.
struct Swarm {
  CoreOptions core;
  int64_t num_groups = 1;
  int64_t num_ranks = 1;  // of each group
  std::vector<GroupRole> roles;
  bool serves_versions = false;  // groups that only train, from memory
  int64_t broken_read = 0;       // of a version from there
  int64_t group_that_goes = -1;  // for good; those that stay train and sample
  int64_t num_clients = 2;
  int64_t actions_per_client = 30;
  int64_t think_time = 0;  // longest between two actions of a client

  // ---- faults, by the pause between two of a kind; 0: none
  int64_t engine_kill_every = 0;
  int64_t engine_freeze_every = 0;  // the next leader starts meanwhile
  int64_t worker_kill_every = 0;
  int64_t worker_hang_every = 0;
  int64_t worker_stop_every = 0;   // in good order, it alone or its whole group
  int64_t disagree_every = 0;      // the ranks of a group part, and all live
  int64_t cut_every = 0;           // a worker's connection ends
  int64_t black_hole_every = 0;    // its messages vanish, both ends notice late
  int64_t version_loss_every = 0;  // a worker cannot read a sampler version back
  int64_t outage_every = 0;        // a group dies and stays away for a while
  int64_t role_change_every = 0;   // ... and comes back to do something else
  // What operators do.
  int64_t move_every = 0;   // a model to another group
  int64_t drain_every = 0;  // a group; some time later it is used again
  // Somebody tells engines how workers end, so late at most. Else engines guess.
  bool is_supervised = false;
  int64_t max_exit_delay = 0;
  int64_t max_notice = 0;  // until the ranks of a group find that one of them is gone

  // ---- network and store
  int64_t max_delay = 0;   // of a message
  int64_t max_commit = 0;  // duration
  int64_t lost_request = 0;
  int64_t lost_answer = 0;
  int64_t duplicate = 0;        // a request arrives twice
  int64_t commit_survives = 0;  // that was under way when its engine died
  int64_t store_error = 0;      // ends the engine; whether it committed is not known
  int64_t max_work = 0;         // duration of an operation
  int64_t setback = 0;          // a worker has lost a gradient when the step comes
  int64_t max_snapshot = 0;     // duration of what is written in the background

  // ---- clients
  int64_t serial = 0;   // sessions
  int64_t gap = 0;      // a seq is never sent
  int64_t late = 0;     // ... and comes long after
  int64_t chunks = 0;   // a group in any order
  int64_t invalid = 0;  // refused at the edge
  int64_t wrong = 0;    // its worker finds it wrong
  int64_t poison = 0;   // its worker dies of it
  int64_t reuse = 0;    // a seq with other content
  int64_t intrude = 0;  // asks for what is another tenant's
  int64_t step = 0;
  int64_t forward = 0;
  int64_t save = 0;
  int64_t publish = 0;
  int64_t load = 0;
  int64_t sample = 0;
  int64_t cancel = 0;
  int64_t remove = 0;  // a checkpoint
  int64_t unload = 0;
  int64_t give_up = 0;  // on a request without an answer
  int64_t vanish = 0;   // clients that end without a word
  int64_t nap = 0;      // ... or hear and say nothing for a while
  int64_t large_body = 0;

  // Engines take workers that somebody ended for ones that died by themselves.
  bool may_blame_innocents() const {
    return !is_supervised && (worker_kill_every > 0 || worker_hang_every > 0 ||
                              worker_stop_every > 0 || disagree_every > 0 || black_hole_every > 0 ||
                              outage_every > 0 || role_change_every > 0);
  }
  // Workers may be given up for lost, so what only they held may be.
  bool may_lose_workers() const {
    return worker_kill_every > 0 || worker_hang_every > 0 || worker_stop_every > 0 ||
           disagree_every > 0 || black_hole_every > 0 || poison > 0 || group_that_goes >= 0 ||
           outage_every > 0 || role_change_every > 0;
  }
};

Swarm DrawSwarm(uint64_t seed);

}  // namespace lathe::engine::simulation
