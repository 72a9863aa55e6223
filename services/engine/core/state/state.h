// The complete state of the core, with the effects of the current Step. The subjects in the other
// folders are functions over it. None of them keeps state of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "services/engine/core/core_options.h"
#include "services/engine/core/state/effects.h"
#include "services/engine/core/state/group.h"
#include "services/engine/core/state/indexed_map.h"
#include "services/engine/core/state/model.h"
#include "services/engine/core/state/request.h"
#include "services/engine/core/state/sampler.h"
#include "services/engine/core/state/session.h"
#include "services/engine/core/state/sweep.h"

namespace lathe::engine {

// Samplers of a tenant whose unnamed versions are kept.
struct TenantVersions {
  int64_t bytes = 0;
  std::map<int64_t, std::string> by_order;                         // of creation
  std::map<std::pair<int64_t, int64_t>, std::string> by_last_use;  // time, then order of creation
};

// Checkpoints of a tenant and base model.
struct Stored {
  int64_t num = 0;
  int64_t bytes = 0;
};

// The facts that decide the size of a checkpoint: base model, kind, rank and adapted modules.
using CheckpointShape = std::tuple<std::string, CheckpointKind, int64_t, std::vector<std::string>>;

// Requests that a tenant had accepted in the last minute.
struct RateWindow {
  struct Use {
    int64_t requests = 0;
    int64_t tokens = 0;
  };
  std::map<int64_t, Use> by_second;  // key: Unix seconds
};

using RequestKey = std::tuple<std::string, OpClass, int64_t>;  // owner_id, op_class, seq_id

// Work that a subject leaves for the subjects above it, which it never calls. Settle does it before
// the Step ends, in this order.
struct FollowUps {
  std::set<std::string> models;    // may have operations that became ready
  std::set<std::string> groups;    // may send more to their workers
  std::set<std::string> sessions;  // may be complete
  std::set<std::string> requests;  // their callers may know an old group
  std::set<std::string> tenants;   // their use, or the room that their limits leave, has changed
  // Tenants that may have more unfetched results than their limits allow. Some of them stay until
  // the next Step, which removes more.
  std::set<std::string> unfetched;
};

struct State {
  explicit State(const CoreOptions& options_in) : options(options_in) {}

  const CoreOptions options;
  int64_t now = 0;  // time of the current Step
  Effects fx;
  int64_t term = 0;
  std::mt19937_64 random;

  std::map<std::string, Session> sessions;
  DueTimes due_sessions;  // sessions that have something to do at that time
  Budget ending{0};       // samplers and models that this Step may still release
  Models models;          // change the group of one with SetGroup
  Samplers samplers;
  Versions versions;
  std::map<std::string, std::set<std::string>> unnamed_samplers;  // by model; absent: none
  std::map<std::string, TenantVersions> version_use;              // by tenant; absent: none
  std::map<std::string, int64_t> num_unnamed;                     // by base model; absent: 0
  // Versions whose newest publication is not on disk, or that are being written. Some may be none
  // of both any more.
  Turns unsaved_versions;
  std::map<std::string, int64_t> num_busy;  // samplers that are not idle, by version; absent: 0
  std::map<std::string, Group> groups;
  std::map<std::string, BaseModelRow> base_models;
  std::map<std::string, CheckpointRow> checkpoints;  // complete ones, by path
  std::map<std::string, std::string> checkpoint_of_dir;
  DueTimes due_checkpoints;                                      // those that expire
  std::map<std::pair<std::string, std::string>, Stored> stored;  // by tenant and base model
  std::map<CheckpointShape, int64_t> checkpoint_bytes;           // size of the newest one
  std::map<std::string, int64_t> dir_pins;  // number of samplers and loads that need the files

  std::map<std::string, Request> requests;
  std::map<RequestKey, std::string> request_ids;
  std::map<int64_t, std::string> live;  // key: order of acceptance
  // The same by group; "": without a group.
  std::map<std::string, std::map<int64_t, std::string>> live_by_group;
  std::set<std::pair<int64_t, std::string>> retention;  // key: time to forget a finished request
  // Finished requests whose result was delivered or removed, by the time of that or of their end.
  std::set<std::pair<int64_t, std::string>> forgettable;
  std::map<std::string, std::string> replays;  // recovery commands under way, id to model
  int64_t num_replays = 0;                     // in this term
  int64_t last_order = 0;
  int64_t num_completed_samples = 0;         // in this term
  std::map<std::string, TenantUsage> usage;  // by tenant; absent: all is zero
  TenantUsage total_usage;                   // of unfinished requests
  int64_t num_queueing_tenants = 0;          // tenants with unfinished requests
  // Unfetched results by tenant, oldest first; absent: none.
  std::map<std::string, std::set<std::pair<int64_t, std::string>>> unfetched;
  std::set<std::pair<int64_t, std::string>> tenants_by_unfetched;  // key: number of these results
  int64_t num_unfetched = 0;                                       // of all tenants
  std::map<std::string, QuotaRow> quotas;                          // by tenant; absent: no limits
  std::map<std::string, RateWindow> rates;                         // tenants with a rate limit

  // Groups whose samples are to be placed again, "": those without a group. By group: the order of
  // acceptance from which on they still are.
  std::map<std::string, int64_t> unplaced_from;
  int64_t num_looked_at = 0;     // requests that PlaceSamples has looked at
  bool sweeps_again = false;     // the next Continue sweeps the sessions once more
  bool is_continue_due = false;  // a Continue was asked for and has not come
  // True: a Continue was due before this Step, which therefore leaves the pieces to it.
  bool leaves_pieces = false;
  // Requests to send again with the next Tick, when the store may answer again.
  std::set<std::string> unsent_request_ids;

  FollowUps follow_ups;

  bool body_kept = false;  // true: the current Submit was accepted
  bool draining = false;
  std::vector<CallId> drain_calls;
  int64_t drained_at = 0;  // time at which all requests ended and the last snapshots began
  int64_t purged_at = 0;
  bool is_forgetting = false;  // true: requests are left to be forgotten
  int64_t storage_hour = 0;    // last hour for which stored bytes were counted
};

template <typename Map>
auto* Find(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

// Asks for a Continue unless one is due.
void AskToContinue(State& s);

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
