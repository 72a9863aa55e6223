// The complete state of the core, with the effects of the current Step. The other files of this
// folder are functions over it, one subject each. None of them keeps state of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "services/engine/batcher/train_window.h"
#include "services/engine/core/actions.h"
#include "services/engine/core/core_options.h"
#include "services/engine/core/state/effects.h"
#include "services/engine/core/state/model_log.h"
#include "services/engine/core/state/plan.h"
#include "services/engine/ledger/gradient_window.h"
#include "services/engine/ledger/seq_order.h"
#include "services/engine/scheduler/fair_queue.h"

namespace lathe::engine {

struct Session {
  SessionRow row;
  int64_t last_sign_at = 0;  // time of the last sign of life
  // True after session_timeout without a sign of life. No client waits for its samples.
  bool is_silent = false;
  // True if nothing of the session is on a worker. Its samplers then do not pin files.
  bool is_offloaded = false;
  int64_t touch_written_at = 0;
  std::set<std::string> model_ids;
  std::set<std::string> sampler_ids;
  std::set<int64_t> sampler_seqs;  // used, or reserved by accepted saves
  int64_t num_live_requests = 0;
};

// Recovery of a model on a worker that lacks its state.
struct Recovery {
  // A state from which a recovery can start: a snapshot, a checkpoint or, if neither is set, the
  // model as it was created. `starts` has the best first; its front is the current one.
  struct Start {
    ModelPoint point;
    std::string snapshot_id;         // empty: no snapshot
    std::optional<LoggedLoad> load;  // load of a checkpoint; unset: none
  };
  bool started = false;
  bool resumes = false;  // the model was offloaded, no state was lost
  std::deque<Start> starts;
  std::deque<ReplayOp> program;            // operations still to do
  ModelPoint point;                        // state of the model once the sent commands are done
  std::map<std::string, int64_t> running;  // seq by command id; 0: restores the start
  std::string failures;                    // why earlier starts failed
  int64_t num_failures = 0;                // failures that a retry may avoid
  int64_t not_before = 0;
  int64_t began_at = 0;
  int64_t num_replayed = 0;  // number of operations that ran again
};

struct Model {
  ModelRow row;
  SeqOrder order;
  GradientWindow gradient;

  // The data to rebuild the model: its snapshots, oldest first, and the log after the oldest.
  // Before there are two snapshots, the creation is a start too: `created_from`, else `created_as`.
  std::vector<SnapshotRow> snapshots;
  ModelLog log;
  std::optional<LoggedLoad> created_from;
  std::optional<LoraConfig> created_as;  // the row's config changes with a later load
  int64_t snapshot_tried_at = 0;         // time of the last try, or when it became ready
  int64_t snapshot_write_time = 0;       // duration of the last write
  bool snapshot_wanted = false;          // true: due before its interval is over
  std::unique_ptr<Recovery> recovery;    // set while no worker has its state
  int64_t num_recoveries_cut = 0;        // consecutive recoveries that a worker's death ended
  // While this is set, a migration is being prepared, and no request of the model starts. It is the
  // time at which the preparation began, or the last time since then at which a request of the
  // model ran. 0: no preparation.
  int64_t migrating_since = 0;
  int64_t stays_until = 0;  // no migration until then, because writing the model took too long

  std::string unload_request_id;  // an unload that waits for all earlier operations
  // A load_weights into this model failed. Requests that were accepted before its caller knew of
  // the failure fail too.
  struct FailedLoad {
    int64_t seq_id = 0;
    int64_t delivered_at = 0;
    std::string message;
  };
  std::optional<FailedLoad> failed_load;
  int64_t num_live_requests = 0;
  int64_t row_written_at = 0;
  NotifyModelState notified;  // state last sent to its callers
};

struct Sampler {
  SamplerRow row;
  int64_t order = 0;  // order of creation
  int64_t last_sampled_at = 0;
  int64_t num_pending = 0;
  bool lost = false;  // its version or checkpoint is gone and cannot be restored

  bool unnamed() const { return !row.version_id.empty() && row.checkpoint_dir.empty(); }
};

// An unnamed sampler version in use by samplers.
struct Version {
  VersionRow row;          // empty dir: not on disk
  int64_t seq_id = 0;      // seq of its newest publication
  std::string saving_dir;  // directory of the write under way; empty: none
  // Directories to which workers wrote the version at this leader's command. A new leader deletes
  // the directories of earlier terms that no row names.
  std::set<std::string> written_dirs;
  bool failed = false;  // true: the last write failed
  // Groups that may read the version, by directory. Directories of earlier publications are kept
  // for these groups.
  std::map<std::string, std::set<std::string>> readers;

  bool on_disk() const { return !row.dir.empty() && row.seq_id == seq_id; }
};

struct Request {
  RequestRow row;              // its plan is left empty, see `plan`
  std::unique_ptr<Plan> plan;  // set until the request ends
  std::string session_id;
  std::string group;  // runs the request; empty until a group is chosen. Change it with SetGroup
  std::string notified_group;  // group last sent to its caller
  int64_t order = 0;           // order of acceptance
  // Quarantined: it ran during a crash of its worker, and runs alone until it ends.
  bool is_quarantined = false;
  int64_t num_crashes_alone = 0;   // crashes of workers that ran only this request
  int64_t num_state_refusals = 0;  // refusals by workers whose state of its model differed
  int64_t num_samples = 0;
  std::string outcome;  // outcome for its row, set at its end
  // Refused at submission: it never runs.
  bool refused = false;

  bool live() const { return plan != nullptr; }
};

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
  TrainWindow window;  // training requests at the worker
  std::map<std::string, int64_t> inflight_sequences_of_request;
  int64_t inflight_sequences = 0;
  std::set<std::string> version_ids;  // loaded, or being loaded from disk
  bool serves_versions = false;       // other groups can read versions from its memory
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
        window(options.batch_tokens) {}
  bool usable() const { return attached && ready; }
  // True for a group that was removed. Its row stays, and a worker may attach to it again.
  bool removed() const {
    return row.base_model.empty() &&
           std::none_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.attached; });
  }
  bool can_train() const { return role != GroupRole::kSample; }
  bool can_sample() const { return role != GroupRole::kTrain; }
};

struct TenantUsage {
  int64_t num_rows = 0;
  int64_t bytes = 0;
};

// Requests that a tenant had accepted in the last minute.
struct RateWindow {
  struct Use {
    int64_t requests = 0;
    int64_t tokens = 0;
  };
  std::map<int64_t, Use> by_second;  // key: Unix seconds
};

using RequestKey = std::tuple<std::string, OpClass, int64_t>;  // owner_id, op_class, seq_id

struct State {
  explicit State(const CoreOptions& options_in) : options(options_in) {}

  const CoreOptions options;
  int64_t now = 0;  // time of the current Step
  Effects fx;
  int64_t term = 0;
  std::mt19937_64 random;

  std::map<std::string, Session> sessions;
  std::map<std::string, Model> models;
  std::map<std::string, Sampler> samplers;
  std::map<std::string, Version> versions;
  std::map<std::string, Group> groups;
  std::map<std::string, BaseModelRow> base_models;
  std::map<std::string, CheckpointRow> checkpoints;  // complete ones, by path
  std::map<std::string, std::string> checkpoint_of_dir;
  std::map<std::string, int64_t> dir_pins;  // number of samplers and loads that need the files

  std::map<std::string, Request> requests;
  std::map<RequestKey, std::string> request_ids;
  std::map<int64_t, std::string> live;                  // key: order of acceptance
  std::set<std::pair<int64_t, std::string>> retention;  // key: time to forget a finished request
  std::set<std::pair<int64_t, std::string>> delivered;  // finished requests, by delivery time
  std::map<std::string, std::string> replays;           // recovery commands under way, id to model
  int64_t num_replays = 0;                              // in this term
  int64_t last_order = 0;
  int64_t num_completed_samples = 0;  // in this term
  std::map<std::string, TenantUsage> usage;
  TenantUsage total_usage;
  std::map<std::string, QuotaRow> quotas;   // by tenant; absent: no limits
  std::map<std::string, RateWindow> rates;  // tenants with a rate limit

  std::set<std::string> samples_to_place;  // samples of a group whose worker was just lost
  std::set<std::string> regrouped;         // requests whose callers may know an old group
  // Requests to send again with the next Tick, when the store may answer again.
  std::set<std::string> unsent_request_ids;

  // Objects to visit again before the Step ends.
  std::set<std::string> dirty_models;
  std::set<std::string> dirty_groups;
  std::set<std::string> dirty_sessions;

  bool body_kept = false;  // true: the current Submit was accepted
  bool draining = false;
  std::vector<CallId> drain_calls;
  int64_t drained_at = 0;  // time at which all requests ended and the last snapshots began
  int64_t purged_at = 0;
  int64_t storage_hour = 0;  // last hour for which stored bytes were counted
};

template <typename Map>
auto* Find(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

// Returns 128 random bits as hex.
std::string NewId(State& s);

void AnswerError(State& s, CallId call, ErrorInfo error);

// Finds a session of the tenant; nullptr if it is absent or another tenant's.
Session* FindSession(State& s, const std::string& tenant_id, const std::string& session_id);

// Returns why the session accepts no new work; nullopt if it is active.
std::optional<ErrorInfo> RefusalOf(const Session& session);

// Returns the base model of the model or sampler that a live request uses; empty if neither is
// left.
std::string BaseModelOf(const State& s, const Request& request);

}  // namespace lathe::engine
