// Tunable limits and timeouts of the core. Times are nanoseconds.
#pragma once

#include <cstdint>

namespace lathe::engine {

inline constexpr int64_t kSecond = 1'000'000'000;

struct CoreOptions {
  // Size of a training batch: about a second of work. A worker has requests of up to two batches. A
  // larger value gives fuller passes and longer waits for new requests. Requests above this size
  // do not count towards the two batches: they have a limit of their own.
  int64_t batch_tokens = 16384;
  // Number of tokens by which one tenant may be ahead of another before the other is served.
  int64_t fair_share_quantum_tokens = 1024;
  // Number of sequences that a group's worker has, decoding or waiting, if it does not report how
  // many it runs together. Others wait in the engine, in fair-share order (SampleWindow).
  int64_t max_inflight_sequences = 2048;

  // Time that a forward or forward_backward of a concurrent session waits for a smaller seq.
  int64_t gap_timeout = 330 * kSecond;
  // Maximum distance of a training seq above the largest one received. A larger skip is a client
  // error: accepting it would abandon all seqs between.
  int64_t max_seqs_ahead = 65536;
  // After this time without a sign of life a session is offloaded: its open gradients are dropped
  // and its models are kept on disk only. Its next sign of life resumes it.
  int64_t session_timeout = 600 * kSecond;
  // After this time without a sign of life a session ends with reason `expired`. If this is not
  // longer than session_timeout, the session is never offloaded.
  int64_t session_kept = int64_t{7} * 24 * 3600 * kSecond;
  // A model without requests for this long is offloaded too, including its gradient, even if its
  // client is connected; 0: never.
  int64_t model_idle_timeout = 0;
  // Time to wait for a worker whose connection ended. After it, the state on the worker is lost.
  int64_t worker_lost_timeout = 15 * kSecond;
  // Time for which a group may lack a worker. After it, its models migrate to a usable group of the
  // same base model, if there is one; 0: they never do.
  int64_t group_lost_timeout = 60 * kSecond;
  // Results are removed this long after their first delivery, or after completion.
  int64_t result_kept_after_delivery = 3600 * kSecond;
  int64_t result_kept_undelivered = 24 * 3600 * kSecond;

  // Minimum time between two snapshots of a changed model; 0: no snapshots. The interval grows if a
  // group's snapshots would take more than `snapshot_share` of its worker's time. A snapshot is due
  // at once after a load, and when the bodies in the log exceed `snapshot_log_bytes`.
  int64_t snapshot_interval = 10 * kSecond;
  double snapshot_share = 0.035;
  int64_t snapshot_log_bytes = int64_t{256} << 20;
  // A request that ran during a crash of its worker runs again alone. It fails after this many
  // crashes while it runs alone.
  int64_t max_crashes_alone = 2;
  // A group is degraded after this many worker deaths within the window without completed work
  // between. It recovers when its worker completes work, or has lived for `worker_healthy_after`.
  int64_t crash_loop_deaths = 5;
  int64_t crash_loop_window = 600 * kSecond;
  int64_t worker_healthy_after = 120 * kSecond;

  // Bound on the memory of a tenant's unnamed sampler versions. Above it, the least recently
  // sampled ones are dropped, but never the newest 4 or one with pending samples.
  int64_t sampler_versions_bytes = int64_t{4} << 30;

  // Maximum number of subjects that each sweep of a Step handles: sessions, models, samples… The
  // others wait for the next Tick or Continue. The end of a sample takes 20 to 30 us.
  int64_t max_swept = 256;

  // Bounds on unfinished requests. A request above a bound gets ResourceExhausted with the name of
  // the bound. The total bounds never refuse a tenant that is below its equal share of them.
  int64_t max_rows_per_model = 4096;
  int64_t max_rows_per_tenant = 65536;
  int64_t max_rows_total = 262144;
  int64_t max_queued_bytes_per_tenant = int64_t{4} << 30;
  int64_t max_queued_bytes_total = int64_t{16} << 30;

  // Limits of each tenant whose quota sets no other; 0: no limit. Above the limit of sessions or
  // samplers, new ones are refused. Above the limits of finished results that nobody has fetched,
  // the oldest of them are removed.
  int64_t max_sessions_per_tenant = 10'000;
  int64_t max_samplers_per_tenant = 100'000;
  int64_t max_unfetched_results_per_tenant = 131'072;
  int64_t max_unfetched_bytes_per_tenant = int64_t{8} << 30;
  // Bounds the memory that finished results of all tenants take in the engine, some 1.5 KB each.
  // Above it, the tenant with most of them loses its oldest; 0: no limit.
  int64_t max_unfetched_results_total = 262'144;
};

}  // namespace lathe::engine
