#include "services/engine/simulation/swarm.h"

namespace lathe::engine::simulation {
namespace {

// Returns 0 for half of the seeds.
int64_t Often(Random& random, int64_t most) {
  return random.Chance(500) ? random.Between(1, most) : 0;
}

int64_t FaultEvery(Random& random, int64_t chance) {
  return random.Chance(chance) ? random.Between(2, 30) * kSecond : 0;
}

// Draws bounds so small that they are reached, like BUGGIFY.
CoreOptions DrawOptions(Random& random) {
  CoreOptions o;
  if (random.Chance(500)) o.batch_tokens = random.Between(5, 60);
  if (random.Chance(300)) o.fair_share_quantum_tokens = random.Between(1, 50);
  if (random.Chance(300)) o.max_inflight_sequences = random.Between(1, 4);
  o.gap_timeout = random.Between(2, 60) * kSecond;
  o.session_timeout = random.Between(30, 120) * kSecond;
  o.session_kept = random.Chance(300) ? 0 : random.Between(60, 700) * kSecond;
  if (random.Chance(300)) o.model_idle_timeout = random.Between(20, 60) * kSecond;
  // Longer than the faults may keep a client from its result.
  o.result_kept_after_delivery = random.Between(1000, 3600) * kSecond;
  o.result_kept_undelivered = random.Between(1000, 7200) * kSecond;
  if (random.Chance(300)) o.sampler_versions_bytes = random.Between(1, 8) * 100;
  if (random.Chance(150)) o.max_rows_per_model = random.Between(2, 12);
  if (random.Chance(100)) o.max_rows_per_tenant = random.Between(4, 16);
  if (random.Chance(100)) o.max_rows_total = random.Between(6, 20);
  if (random.Chance(100)) o.max_queued_bytes_per_tenant = random.Between(200, 2000);
  return o;
}

void DrawFaults(Random& random, Swarm& swarm) {
  swarm.engine_kill_every = FaultEvery(random, 500);
  swarm.engine_freeze_every = FaultEvery(random, 250);
  swarm.worker_kill_every = FaultEvery(random, 350);
  swarm.worker_hang_every = FaultEvery(random, 150);
  swarm.cut_every = FaultEvery(random, 400);
  swarm.black_hole_every = FaultEvery(random, 150);
  swarm.max_delay = random.Chance(300) ? random.Between(100, 3000) * kMillisecond
                                       : random.Between(1, 20) * kMillisecond;
  swarm.max_commit = random.Chance(300) ? random.Between(100, 2000) * kMillisecond
                                        : random.Between(1, 10) * kMillisecond;
  swarm.max_work = random.Chance(300) ? random.Between(1000, 8000) * kMillisecond
                                      : random.Between(5, 300) * kMillisecond;
  swarm.max_snapshot = random.Between(1, 5000) * kMillisecond;
  swarm.lost_request = Often(random, 150);
  swarm.lost_answer = Often(random, 150);
  swarm.duplicate = Often(random, 200);
  swarm.commit_survives = random.Between(0, 1000);
  swarm.store_error = random.Chance(250) ? random.Between(1, 15) : 0;
}

void DrawBehaviour(Random& random, Swarm& swarm) {
  swarm.serial = random.Between(0, 1000);
  swarm.gap = Often(random, 100);
  swarm.late = Often(random, 700);
  swarm.chunks = Often(random, 500);
  swarm.invalid = Often(random, 100);
  swarm.wrong = Often(random, 150);
  swarm.poison = random.Chance(150) ? random.Between(1, 30) : 0;
  swarm.reuse = Often(random, 60);
  swarm.intrude = Often(random, 60);
  swarm.step = random.Between(100, 500);
  swarm.forward = Often(random, 200);
  swarm.save = Often(random, 200);
  swarm.publish = Often(random, 250);
  swarm.load = Often(random, 150);
  swarm.sample = Often(random, 500);
  swarm.cancel = Often(random, 300);
  swarm.remove = Often(random, 60);
  swarm.unload = Often(random, 30);
  swarm.give_up = Often(random, 200);
  swarm.vanish = Often(random, 500);
  swarm.nap = Often(random, 30);
  swarm.large_body = Often(random, 300);
}

// Draws the roles. A group that is lost leaves others with the same role.
void DrawGroups(Random& random, Swarm& swarm) {
  swarm.roles.assign(static_cast<size_t>(swarm.num_groups), GroupRole::kBoth);
  if (swarm.num_groups == 1) return;
  swarm.core.group_lost_timeout = random.Between(1, 60) * kSecond;
  const bool goes = random.Chance(400);
  if (random.Chance(400)) {
    swarm.roles[0] = GroupRole::kTrain;
    if (swarm.num_groups == 2) {
      swarm.roles[1] = random.Chance(500) ? GroupRole::kSample : GroupRole::kBoth;
    } else {
      swarm.roles[1] = GroupRole::kSample;
    }
  } else if (random.Chance(300)) {
    swarm.roles[0] = GroupRole::kSample;
  }
  swarm.serves_versions = random.Chance(700);
  swarm.broken_read = Often(random, 300);
  if (!goes) return;
  const bool last_is_whole = swarm.roles.back() == GroupRole::kBoth;
  if (last_is_whole) swarm.group_that_goes = random.Between(0, swarm.num_groups - 2);
}

// Draws the causes of migrations.
void DrawMoves(Random& random, Swarm& swarm) {
  if (swarm.num_groups == 1) return;
  swarm.outage_every = FaultEvery(random, 300);
  // The last group takes over the work of the others.
  const bool may_change = swarm.roles.back() == GroupRole::kBoth;
  if (may_change) swarm.role_change_every = FaultEvery(random, 250);
  swarm.move_every = FaultEvery(random, 400);
  swarm.drain_every = FaultEvery(random, 250);
}

// Draws limits of tenants that are reached.
void DrawTenantLimits(Random& random, CoreOptions& o) {
  if (random.Chance(250)) o.max_unfetched_results_per_tenant = random.Between(1, 12);
  if (random.Chance(150)) o.max_unfetched_bytes_per_tenant = random.Between(100, 1500);
  if (random.Chance(150)) o.max_unfetched_results_total = random.Between(2, 20);
  if (random.Chance(200)) o.max_samplers_per_tenant = random.Between(1, 5);
  if (random.Chance(150)) o.max_sessions_per_tenant = random.Between(1, 2);
}

}  // namespace

Swarm DrawSwarm(uint64_t seed) {
  Random random(seed);
  Swarm swarm;
  swarm.core = DrawOptions(random);
  swarm.num_groups = random.Chance(350) ? random.Between(2, 3) : 1;
  swarm.num_clients = random.Between(1, 5);
  swarm.actions_per_client = random.Between(5, 120);
  swarm.think_time = random.Between(20, 1500) * kMillisecond;
  DrawFaults(random, swarm);
  DrawBehaviour(random, swarm);
  swarm.is_supervised = random.Chance(600);
  swarm.max_exit_delay = (random.Chance(700) ? 20 : 9000) * kMillisecond;
  if (random.Chance(300)) swarm.core.crash_loop_deaths = random.Between(1, 5);
  swarm.version_loss_every = FaultEvery(random, 150);
  swarm.setback = random.Chance(150) ? random.Between(1, 200) : 0;
  swarm.num_ranks = random.Chance(400) ? random.Between(2, 4) : 1;
  swarm.worker_stop_every = FaultEvery(random, 150);
  if (swarm.num_ranks > 1) swarm.disagree_every = FaultEvery(random, 200);
  swarm.max_notice = (random.Chance(500) ? 50 : 5000) * kMillisecond;
  DrawGroups(random, swarm);
  DrawMoves(random, swarm);
  // Without these faults no worker goes away.
  swarm.core.worker_lost_timeout =
      swarm.may_lose_workers() ? random.Between(1, 20) * kSecond : int64_t{24} * 3600 * kSecond;
  if (swarm.num_groups > 1) swarm.remove_group_every = FaultEvery(random, 200);
  // The last draws, so that the others are those of seeds that were run before these came.
  if (random.Chance(400)) swarm.core.max_swept = random.Between(1, 6);
  DrawTenantLimits(random, swarm.core);
  if (!random.Chance(700)) swarm.max_running_samples = random.Between(1, 4);
  return swarm;
}

}  // namespace lathe::engine::simulation
