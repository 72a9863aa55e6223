// What people may choose about the core's decisions. Times are nanoseconds.
#pragma once

#include <cstdint>

namespace lathe::engine {

inline constexpr int64_t kSecond = 1'000'000'000;

struct CoreOptions {
  // About a second of work. A worker has requests of twice as many tokens. More: fuller passes,
  // longer waits for newcomers. Requests that are larger by themselves are counted apart.
  int64_t batch_tokens = 16384;
  // Tokens a tenant may be ahead of another before it is the other's turn.
  int64_t fair_share_quantum_tokens = 1024;
  // Sequences of one group that decode or wait in its worker; more wait here, in fair-share order.
  int64_t max_inflight_sequences = 2048;

  // A forward or forward_backward of a concurrent session waits this long for a smaller seq.
  int64_t gap_timeout = 330 * kSecond;
  // A training seq may be this far above the largest that came. Beyond: no client skips so many,
  // and taking it for the next would abandon all between.
  int64_t max_seqs_ahead = 65536;
  // A session without a sign of life is given no memory after this long: its open gradients are
  // dropped, its models parked on disk. Its next sign of life takes it up again.
  int64_t session_timeout = 600 * kSecond;
  // It ends, with reason `expired`, this long after its last sign of life. Not longer than
  // session_timeout: without having been parked.
  int64_t session_kept = int64_t{7} * 24 * 3600 * kSecond;
  // A model without requests for this long is parked too, with its gradient, although its client is
  // there; 0: never.
  int64_t model_idle_timeout = 0;
  // A worker whose connection ended is waited for this long; then what it held is lost.
  int64_t worker_lost_timeout = 15 * kSecond;
  // A group that has lost its worker, and was not usable for this long, may not come back: its
  // models go on in another one of their base model, if there is one that is usable; 0: never.
  int64_t group_lost_timeout = 60 * kSecond;
  // Results are removed this long after their first delivery, or after completion.
  int64_t result_kept_after_delivery = 3600 * kSecond;
  int64_t result_kept_undelivered = 24 * 3600 * kSecond;

  // A model that changed is snapshotted this often at most; 0: never. Seldomer when a group's
  // snapshots would take its worker more than `snapshot_share` of the time; at once after a load
  // and when the bodies since the older of its two snapshots exceed `snapshot_log_bytes`.
  int64_t snapshot_interval = 10 * kSecond;
  double snapshot_share = 0.035;
  int64_t snapshot_log_bytes = int64_t{256} << 20;
  // A request that ran when its worker died by itself runs again alone, and fails after so many
  // deaths while it did.
  int64_t max_crashes_alone = 2;
  // A group whose worker died so often within the window, with no work done between, is degraded:
  // until its worker has done work, or has lived for `worker_healthy_after`.
  int64_t crash_loop_deaths = 5;
  int64_t crash_loop_window = 600 * kSecond;
  int64_t worker_healthy_after = 120 * kSecond;

  // Memory of a tenant's unnamed sampler versions; the least recently sampled are dropped above it,
  // never the newest 4 or one with pending samples.
  int64_t sampler_versions_bytes = int64_t{4} << 30;

  // Unfinished requests. Above a bound: ResourceExhausted with its name. The total bounds never
  // refuse a tenant that is below its equal share of them.
  int64_t max_rows_per_model = 4096;
  int64_t max_rows_per_tenant = 65536;
  int64_t max_rows_total = 262144;
  int64_t max_queued_bytes_per_tenant = int64_t{4} << 30;
  int64_t max_queued_bytes_total = int64_t{16} << 30;
};

}  // namespace lathe::engine
