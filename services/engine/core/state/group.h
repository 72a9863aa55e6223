// The core's record of a worker group and of its processes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/engine/batcher/sample_window.h"
#include "services/engine/batcher/train_window.h"
#include "services/engine/core/actions.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core/events.h"
#include "services/engine/scheduler/fair_queue.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// A weight transfer: a version from the memory of the group that trains its model to another group.
struct WeightTransfer {
  std::string from;
  int64_t seq_id = 0;      // seq of the publication
  bool is_served = false;  // the source serves it; the group was sent the load
};

// A rank of a group with its current process, if any.
struct Rank {
  bool attached = false;
  int64_t detached_at = 0;  // time of the disconnect, or start of the wait for the rank
  std::string process_id;
  // Names the set of processes with which this one was formed; empty: none.
  std::string session;
  int64_t epoch = 0;  // epoch in which this process was formed or adopted; 0: none
  int64_t stream_id = 0;
  std::string address;  // rendezvous address, for rank 0
  int64_t port = 0;
  int64_t pid = 0;
  bool is_supervised = false;        // its parent reports how it ends
  std::optional<WorkerExited> exit;  // reported exit; the stream may not have ended yet
  std::string exit_session;          // `session` of the process that `exit` describes
  int64_t last_exit_pid = 0;
  std::string refusal;  // why no work may be given to its group; empty: it may
};

// A worker group. `row.process_id` names the set of processes that it consists of (ranks.h).
struct Group {
  GroupRow row;
  MeshShape mesh;
  std::vector<Rank> ranks = {Rank()};
  // All ranks have attached, and rank 0, which gets the commands, is connected.
  bool attached = false;
  GroupRole role = GroupRole::kBoth;    // valid once its worker attached in this term
  std::optional<WorkerAttached> hello;  // from rank 0, while other ranks are awaited
  bool ready = false;                   // the base model is loaded
  int64_t kv_cache_tokens = 0;
  FairQueue train;
  FairQueue large_train;  // requests larger than a batch
  FairQueue samples;
  TrainWindow window;                 // training requests at the worker
  SampleWindow sample_window;         // sample requests at the worker
  std::set<std::string> version_ids;  // loaded, or being loaded from disk
  // Versions that its worker may have read from a directory since it attached; some may be gone.
  std::set<std::string> read_version_ids;
  bool serves_versions = false;  // other groups can read versions from its memory
  // Weight transfers to this group, by version id. Samples of these versions wait.
  std::map<std::string, WeightTransfer> transfers;
  // Earliest time of the next weight transfer, by source group, after one failed.
  std::map<std::string, int64_t> no_transfer_until;
  // Snapshot that its worker is writing; empty: none.
  std::string snapshot_id;
  std::string snapshot_model_id;

  // Live requests that the worker was sent and has not answered. `started`: requests that it
  // reported as started, including ones that an earlier leader sent.
  std::set<std::string> at_worker;
  std::set<std::string> started;
  // Quarantined requests that can run, by order of acceptance. While there are any, barriers wait
  // in `held` and other requests in their queues.
  std::map<int64_t, std::string> quarantined;
  std::map<int64_t, std::string> held;
  std::string alone;  // the quarantined request that runs alone

  // Rank and pid of the current processes, or of the last ones.
  std::set<std::pair<int64_t, int64_t>> processes;
  bool is_supervised = false;     // a parent reports how they end
  bool attached_in_term = false;  // false: no worker was attached in this term
  bool loaded = false;            // its base model was loaded since its last attach
  int64_t usable_since = 0;
  int64_t last_usable_at = 0;  // the leader's start counts as a use
  // The last lost sets of processes, oldest first. While `is_attributed` is false, a reported crash
  // is attributed to the set's requests. Once it is true, further exits of the set change nothing.
  struct LostRun {
    // Rank and pid of the processes whose exit was not reported.
    std::set<std::pair<int64_t, int64_t>> processes;
    bool is_attributed = false;
    bool is_counted = false;  // counted as a death: the ranks lost contact
    bool was_ended = false;   // one process ended in order; the others ended because of it
    bool was_loaded = false;
    std::string alone;
    std::set<std::string> request_ids;
  };
  std::deque<LostRun> lost_runs;
  std::string last_crash;  // last crash whose cause was reported late; shown to people

  std::deque<int64_t> deaths;  // times within crash_loop_window, since the last completed work
  std::string last_death;      // for people
  int64_t next_try_at = 0;     // time at which the parent restarts the process; 0: unknown
  int64_t evict_at = 0;        // time to evict the rest of a set that ends in order; 0: none
  bool degraded = false;
  NotifyGroupDrain notified_drain;  // state last published
  // Not empty: the reason why its worker, with base model `refused_model`, is not used.
  std::string refused;
  std::optional<ReadyModel> refused_model;

  Group(GroupRow row_in, const CoreOptions& options)
      : row(std::move(row_in)),
        train(options.fair_share_quantum_tokens),
        large_train(options.batch_tokens),
        samples(options.fair_share_quantum_tokens),
        window(options.batch_tokens),
        sample_window(options.max_inflight_sequences) {}
  bool usable() const { return attached && ready; }
  // True for a group that was removed. Its row stays, and a worker may attach to it again.
  bool removed() const {
    return row.base_model.empty() &&
           std::none_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.attached; });
  }
  bool can_train() const { return role != GroupRole::kSample; }
  bool can_sample() const { return role != GroupRole::kTrain; }
};

}  // namespace lathe::engine
