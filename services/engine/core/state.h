// Everything the core knows, and the effects of the Step that is running. The files beside this one
// are functions over it, one subject each; none of them keeps state of its own.
#pragma once

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
#include "services/engine/core/effects.h"
#include "services/engine/core/model_log.h"
#include "services/engine/core/plan.h"
#include "services/engine/ledger/gradient_window.h"
#include "services/engine/ledger/seq_order.h"
#include "services/engine/scheduler/fair_queue.h"

namespace lathe::engine {

struct Session {
  SessionRow row;
  int64_t last_sign_at = 0;  // of life
  // Since then it was silent for the session_timeout: nobody waits for its samples…
  bool is_silent = false;
  // … and nothing of it is on a worker any more; its samplers do not hold on to files.
  bool is_parked = false;
  int64_t touch_written_at = 0;
  std::set<std::string> model_ids;
  std::set<std::string> sampler_ids;
  std::set<int64_t> sampler_seqs;  // used or promised
  int64_t num_live_requests = 0;
};

// How a model gets back onto a worker that has not got its state.
struct Recovery {
  // From where to go on; the best first, and that which is being tried not among them.
  struct Start {
    ModelPoint point;
    std::string snapshot_id;         // empty: none
    std::optional<LoggedLoad> load;  // of a checkpoint; neither: as it was created
  };
  bool started = false;
  bool resumes = false;  // it was parked: nothing went wrong
  std::deque<Start> starts;
  std::deque<ReplayOp> program;            // what is left of it
  ModelPoint point;                        // where the model is now
  std::map<std::string, int64_t> running;  // ids in State::replays; seq, 0 of the start
  std::string failures;                    // of starts that were tried
  int64_t num_failures = 0;                // that another try may not meet
  int64_t not_before = 0;
  int64_t began_at = 0;
  int64_t num_replayed = 0;  // operations
};

struct Model {
  ModelRow row;
  SeqOrder order;
  GradientWindow gradient;

  // What rebuilds it: snapshots, oldest first, and what came after the oldest. Before there are
  // two, how it was created counts too: from `created_from`, else as `created_as`.
  std::vector<SnapshotRow> snapshots;
  ModelLog log;
  std::optional<LoggedLoad> created_from;
  std::optional<LoraConfig> created_as;  // a later load changes that of the row
  int64_t snapshot_tried_at = 0;         // the last time, or when it became ready
  int64_t snapshot_write_time = 0;       // of the last one
  bool snapshot_wanted = false;          // before its time
  std::unique_ptr<Recovery> recovery;    // while no worker has its state
  int64_t num_recoveries_cut = 0;        // one after the other by the death of the worker
  // Nothing of it begins, as it is about to move to another group: since when nothing of it runs
  // any more; 0: it is not.
  int64_t leaving_since = 0;
  int64_t stays_until = 0;  // then it is tried again: it could not be written

  std::string unload_request_id;  // waits for everything before it
  // A load_weights into this model failed: what was accepted before its caller knew fails too.
  struct FailedLoad {
    int64_t seq_id = 0;
    int64_t delivered_at = 0;
    std::string message;
  };
  std::optional<FailedLoad> failed_load;
  int64_t num_live_requests = 0;
  int64_t row_written_at = 0;
  NotifyModelState told;  // what its callers know
};

struct Sampler {
  SamplerRow row;
  int64_t order = 0;  // of creation
  int64_t last_sampled_at = 0;
  int64_t num_pending = 0;
  bool lost = false;  // its version went with its worker, and nothing brings it back

  bool unnamed() const { return !row.version_id.empty() && row.checkpoint_dir.empty(); }
};

// An unnamed sampler version that samplers use.
struct Version {
  VersionRow row;          // dir empty: not on disk
  int64_t seq_id = 0;      // of its newest publication
  std::string saving_dir;  // a worker is writing it there
  // Where workers were told to write it. Others were told by an earlier leader, and are gone: this
  // one has removed at its start what no row named.
  std::set<std::string> told_dirs;
  bool failed = false;  // to be written, the last time
  // Groups that may read it, by directory. Those of earlier publications are kept for them.
  std::map<std::string, std::set<std::string>> readers;

  bool on_disk() const { return !row.dir.empty() && row.seq_id == seq_id; }
};

struct Request {
  RequestRow row;              // plan left empty, see below
  std::unique_ptr<Plan> plan;  // until it ends
  std::string session_id;
  std::string group;               // that runs it; samples: once chosen. See SetGroup
  std::string told_group;          // what its caller knows
  int64_t order = 0;               // of acceptance
  bool is_suspect = false;         // ran when its worker died by itself: runs alone until it ends
  int64_t num_crashes_alone = 0;   // workers that died while they ran nothing else
  int64_t num_state_refusals = 0;  // by workers that had another state of its model
  int64_t num_samples = 0;
  std::string outcome;  // of its row, once it ends
  bool refused = false;

  bool live() const { return plan != nullptr; }
};

// A version on its way from the memory of the group that trains its model to another one.
struct VersionTravel {
  std::string from;
  int64_t seq_id = 0;      // of the publication
  bool is_served = false;  // and the group is told to read it
};

// One process of a group.
struct Rank {
  bool attached = false;
  int64_t detached_at = 0;  // or since when it is waited for
  std::string process_id;
  // Of the set of processes that it has been formed with; empty: none.
  std::string session;
  int64_t epoch = 0;  // that it has been formed or adopted with; 0: none
  int64_t stream_id = 0;
  std::string address;  // of rank 0: where its peers may meet it
  int64_t port = 0;
  int64_t pid = 0;
  bool is_supervised = false;        // its parent says how it ends
  std::optional<WorkerExited> exit;  // said before its stream ended
  std::string exit_session;          // of the process that `exit` is of, as `session`
  int64_t last_exit_pid = 0;
};

// `row.process_id` names the set of processes that the group consists of (ranks.h).
struct Group {
  GroupRow row;
  MeshShape mesh;
  std::vector<Rank> ranks = {Rank()};
  // All ranks have come, and rank 0, to which its commands go, is there.
  bool attached = false;
  GroupRole role = GroupRole::kBoth;    // unless its worker has come in this term: not known
  std::optional<WorkerAttached> hello;  // of rank 0, while its peers are waited for
  bool ready = false;                   // the base model is loaded
  int64_t kv_cache_tokens = 0;
  FairQueue train;
  FairQueue large_train;  // requests of more than a batch
  FairQueue samples;
  TrainWindow window;  // of the worker
  std::map<std::string, int64_t> inflight_sequences_of_request;
  int64_t inflight_sequences = 0;
  std::set<std::string> version_ids;  // loaded, or told to load from disk
  bool serves_versions = false;       // others can read those that it has in memory
  // That are to come to it from the memory of others, by version id. Its samples wait.
  std::map<std::string, VersionTravel> travels;
  // Until when none does after one that failed, by the group it was from.
  std::map<std::string, int64_t> no_travel_until;
  // That its worker is writing; empty: none.
  std::string snapshot_id;
  std::string snapshot_model_id;

  // Requests it was sent and has not ended; those that it has, of an earlier leader too, and said
  // to start.
  std::set<std::string> at_worker;
  std::set<std::string> started;
  // Suspects that can run, by order of acceptance. While there are any, barriers wait in `held` and
  // other requests in their queues.
  std::map<int64_t, std::string> suspects;
  std::map<int64_t, std::string> held;
  std::string alone;  // the suspect whose turn it is

  // Of the processes that it consists of, or did last: rank and pid.
  std::set<std::pair<int64_t, int64_t>> processes;
  bool is_supervised = false;     // their parents say how they end
  bool attached_in_term = false;  // else nothing is known of how it went
  bool loaded = false;            // was ready
  int64_t usable_since = 0;
  int64_t last_usable_at = 0;  // of a group that was not: when this leader heard of it
  // Of the last sets of processes that were lost, oldest first. Before their parents said how they
  // ended: whom a crash would be laid to. After: whose ends need no more explanation.
  struct LostRun {
    std::set<std::pair<int64_t, int64_t>> processes;  // rank and pid, whose ends were not told
    bool is_explained = false;
    bool is_counted = false;  // as a death, though not explained: its ranks lost each other
    bool was_ended = false;   // one of them, in good order: the others left for that
    bool was_loaded = false;
    std::string alone;
    std::set<std::string> request_ids;
  };
  std::deque<LostRun> lost_runs;
  std::string last_crash;  // of those that were told of late; for people

  std::deque<int64_t> deaths;  // since work was done, within the window
  std::string last_death;      // for people
  int64_t next_try_at = 0;     // 0: not known
  int64_t dismiss_at = 0;      // those that are left of a set that ends in good order; 0: none are
  bool degraded = false;
  NotifyGroupDrain told_drain;  // what is known of it outside
  // Not empty: why its worker, whose model is `refused_model`, is not used.
  std::string refused;
  std::optional<ReadyModel> refused_model;

  Group(GroupRow row_in, const CoreOptions& options)
      : row(std::move(row_in)),
        train(options.fair_share_quantum_tokens),
        large_train(options.batch_tokens),
        samples(options.fair_share_quantum_tokens),
        window(options.batch_tokens) {}
  bool usable() const { return attached && ready; }
  bool can_train() const { return role != GroupRole::kSample; }
  bool can_sample() const { return role != GroupRole::kTrain; }
};

struct TenantUsage {
  int64_t num_rows = 0;
  int64_t bytes = 0;
};

// What a tenant had accepted in the last minute.
struct RateWindow {
  struct Use {
    int64_t requests = 0;
    int64_t tokens = 0;
  };
  std::map<int64_t, Use> by_second;  // Unix seconds
};

using RequestKey = std::tuple<std::string, OpClass, int64_t>;  // owner_id, op_class, seq_id

struct State {
  explicit State(const CoreOptions& options_in) : options(options_in) {}

  const CoreOptions options;
  int64_t now = 0;  // of the running Step
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
  std::map<std::string, int64_t> dir_pins;  // samplers and loads that need the files

  std::map<std::string, Request> requests;
  std::map<RequestKey, std::string> request_ids;
  std::map<int64_t, std::string> live;                  // in order of acceptance
  std::set<std::pair<int64_t, std::string>> retention;  // when a finished request is forgotten
  std::set<std::pair<int64_t, std::string>> delivered;  // those of them that were, and when
  std::map<std::string, std::string> replays;           // commands under way -> model
  int64_t num_replays = 0;                              // in this term
  int64_t last_order = 0;
  int64_t num_completed_samples = 0;  // in this term
  std::map<std::string, TenantUsage> usage;
  TenantUsage total_usage;
  std::map<std::string, QuotaRow> quotas;   // by tenant; absent: no limits
  std::map<std::string, RateWindow> rates;  // of tenants with a rate

  std::set<std::string> samples_to_place;    // of a group whose worker was just lost
  std::set<std::string> regrouped;           // requests whose callers may not know their group
  std::set<std::string> unsent_request_ids;  // with the next Tick: the store may answer again

  // Subjects to look at again before the Step ends.
  std::set<std::string> dirty_models;
  std::set<std::string> dirty_groups;
  std::set<std::string> dirty_sessions;

  bool body_kept = false;  // the running Submit was accepted
  bool draining = false;
  std::vector<CallId> drain_calls;
  int64_t drained_at = 0;  // nothing ran any more, snapshots began
  int64_t purged_at = 0;
  int64_t storage_hour = 0;  // in which stored bytes were counted last
};

template <typename Map>
auto* Find(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

// 128 random bits as hex.
std::string NewId(State& s);

void AnswerError(State& s, CallId call, ErrorInfo error);

// Of the caller's tenant; nullptr: absent or foreign.
Session* FindSession(State& s, const std::string& tenant_id, const std::string& session_id);

}  // namespace lathe::engine
