// The faults and behaviours of one seed, and their amounts.
#pragma once

#include <cstdint>
#include <vector>

#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"
#include "services/engine/simulation/random.h"

namespace lathe::engine::simulation {

inline constexpr int64_t kMillisecond = 1'000'000;

// Chances are per mille of the event that the field names; 0: none in this seed. Every seed leaves
// most of them out ("swarm testing", Groce et al. 2012): an event that is rare in a full mix is
// common alone.
struct Swarm {
  CoreOptions core;
  int64_t num_groups = 1;
  int64_t num_ranks = 1;  // ranks of each group
  std::vector<GroupRole> roles;
  bool serves_versions = false;  // training groups serve versions from memory
  int64_t broken_read = 0;       // failed read of a version from memory
  int64_t group_that_goes = -1;  // lost for good; the others train and sample
  int64_t num_clients = 2;
  int64_t actions_per_client = 30;
  int64_t think_time = 0;  // longest time between two actions of a client

  // ---- faults, as the mean time between two of a kind; 0: none
  int64_t engine_kill_every = 0;
  int64_t engine_freeze_every = 0;  // the next leader starts meanwhile
  int64_t worker_kill_every = 0;
  int64_t worker_hang_every = 0;
  int64_t worker_stop_every = 0;   // an orderly end of a worker or its whole group
  int64_t disagree_every = 0;      // the ranks of a group disagree and leave; all live
  int64_t cut_every = 0;           // a worker's connection ends
  int64_t black_hole_every = 0;    // its messages are lost, both ends notice late
  int64_t version_loss_every = 0;  // a worker cannot read a sampler version back
  int64_t outage_every = 0;        // a group dies and stays away for a while
  int64_t role_change_every = 0;   // an outage that ends with another role
  // Actions of operators.
  int64_t move_every = 0;          // migration of a model to another group
  int64_t drain_every = 0;         // drain of a group, ended some time later
  int64_t remove_group_every = 0;  // removal of a group without an attached worker
  // If supervised, engines get reports of exits with up to this delay. Otherwise they guess.
  bool is_supervised = false;
  int64_t max_exit_delay = 0;
  int64_t max_notice = 0;  // until the ranks of a group notice the loss of one

  // ---- network and store
  int64_t max_delay = 0;   // longest delay of a message
  int64_t max_commit = 0;  // longest duration
  int64_t lost_request = 0;
  int64_t lost_answer = 0;
  int64_t duplicate = 0;        // a request that arrives twice
  int64_t commit_survives = 0;  // a commit under way when its engine died
  int64_t store_error = 0;      // ends the engine; the commit may have succeeded
  int64_t max_work = 0;         // longest duration of an operation
  int64_t setback = 0;          // a worker loses a gradient before a step
  int64_t max_snapshot = 0;     // longest duration of a background write
  // Samples that each worker says it runs together; 0: neither this nor the ends of sequences.
  int64_t max_running_samples = 0;

  // ---- clients
  int64_t serial = 0;   // serial sessions
  int64_t gap = 0;      // a seq that is skipped
  int64_t late = 0;     // a skipped seq that is sent later
  int64_t chunks = 0;   // parallel submissions in any order
  int64_t invalid = 0;  // refused by rpc/
  int64_t wrong = 0;    // a request that its worker fails
  int64_t poison = 0;   // a request that may kill its worker
  int64_t reuse = 0;    // another request under a used seq
  int64_t intrude = 0;  // requests for another tenant's objects
  int64_t step = 0;
  int64_t forward = 0;
  int64_t save = 0;
  int64_t publish = 0;
  int64_t load = 0;
  int64_t sample = 0;
  int64_t cancel = 0;
  int64_t remove = 0;  // deletion of a checkpoint
  int64_t unload = 0;
  int64_t give_up = 0;  // a client gives up a request without an answer
  int64_t vanish = 0;   // clients that end without notice
  int64_t nap = 0;      // clients that are silent for a while
  int64_t large_body = 0;

  // Returns true if results may be removed before their clients fetch them.
  bool may_drop_results() const {
    const CoreOptions defaults;
    return core.max_unfetched_results_per_tenant < defaults.max_unfetched_results_per_tenant ||
           core.max_unfetched_bytes_per_tenant < defaults.max_unfetched_bytes_per_tenant ||
           core.max_unfetched_results_total < defaults.max_unfetched_results_total;
  }
  bool limits_samplers() const {
    return core.max_samplers_per_tenant < CoreOptions().max_samplers_per_tenant;
  }
  // Returns true if engines may mistake workers that were ended from outside for crashed ones.
  bool may_fail_bystanders() const {
    return !is_supervised && (worker_kill_every > 0 || worker_hang_every > 0 ||
                              worker_stop_every > 0 || disagree_every > 0 || black_hole_every > 0 ||
                              outage_every > 0 || role_change_every > 0);
  }
  // Returns true if workers may be declared dead, with the loss of state that only they held.
  bool may_lose_workers() const {
    return worker_kill_every > 0 || worker_hang_every > 0 || worker_stop_every > 0 ||
           disagree_every > 0 || black_hole_every > 0 || poison > 0 || group_that_goes >= 0 ||
           outage_every > 0 || role_change_every > 0;
  }
};

Swarm DrawSwarm(uint64_t seed);

}  // namespace lathe::engine::simulation
